"""What is learned (Model, Problem), from what (Batch), and in what steps (Step)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types.defaults import itself, nothing

Params = Any  # a pytree of arrays
Grads = Any  # a pytree shaped like Params: what goes into an optimizer
STATISTICS = "statistics"  # the name of params that are running means


class Batch(NamedTuple):
    """One minibatch: the first axis of every array counts the examples."""

    inputs: Any
    targets: Any


class Examples(NamedTuple):
    """Data that is made when it is asked for: a minibatch from the numbers of draws.

    Draw d is example d % count, in epoch d // count. What is random about it, such as
    which words are masked, depends on its number alone.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    take: Callable[[np.ndarray], Batch]


class Layer(NamedTuple):
    """A part of a model: the first gets None, the last gives the loss."""

    names: tuple[str, ...]  # of params: those that it reads; two layers may share one
    # its params by name, what the layer before it gave, the batch -> what it gives
    apply: Callable[[Mapping[str, Params], Any, Any], Any]


class Model(NamedTuple):
    """Pure functions; loss is the mean over the batch's examples.

    A batch is a Batch, or what its model says.
    """

    init: Callable[[Any], Params]  # random key -> params
    loss: Callable[[Params, Any], Any]  # -> scalar
    metrics: Callable[[Params, Any], Mapping[str, Any]]  # -> means over the batch
    layers: Sequence[Layer] = ()  # the loss cut into parts; params are then by name
    scores: Callable[[Params, Any], Any] | None = None  # a batch's inputs -> log-odds


class Tensor(NamedTuple):
    """A model cut over the axis `tensor`: what one of its devices computes and holds.

    Inside shard_map the layers take the device's slices, and give the whole loss.
    """

    layers: Sequence[Layer]
    specs: Any  # a tree like params: how each leaf lies
    partial: Any  # a tree like params: whole leaves whose gradient is yet to be summed


class Problem(NamedTuple):
    """What is learned: a start value, and the gradient of a loss by minibatches.

    Strategies read minibatches in two calls. `take` may run in the background; what it
    returns is passed to `gradient` and `touched`.

    params: the start value; a pytree of arrays, or one table, an array of T rows.
    examples: the number of examples. A minibatch is an array of their indices.
    gradient: (params, batch) -> the mean loss over the batch and its gradient; a tree
        like params, or the Rows of a table that the batch touches, valid until the next
        call.
    evaluate: params -> measures by name.
    take: indices -> batch; by default the indices themselves.

    The rest is optional; `dml.strategies` lists which strategy needs what.

    touched: batch -> the rows that its gradient reads and changes, each once.
    frequency: how often all examples together touch each row; None: equally often.
    kernel: compiled descent, in place, over one example after another.
    products: inner products of rows, whose columns can be split over ranks.
    model: a JAX model whose loss `gradient` differentiates.
    table: () -> the same problem whose params are one table of rows.
    sums: whether gradients are those of the summed loss, not of the mean: parts of a
        minibatch are added without weights.
    """

    params: Params
    examples: int
    gradient: Any
    evaluate: Callable[[Params], Mapping[str, Any]]
    take: Callable[[np.ndarray], Any] = itself
    touched: Callable[[Any], np.ndarray | slice] | None = None
    frequency: np.ndarray | None = None
    kernel: Any = None
    products: Any = None
    model: "Model | None" = None
    table: "Callable[[], Problem] | None" = None
    sums: bool = False


class Step(NamedTuple):
    """What a strategy yields after one update, or after several.

    number: updates so far.
    loss: the mean over this step's examples, each before its update.
    params: () -> the parameters after the update. Collective; rank 0 gets the value,
        and where `replicas` is true every rank does. Valid until the next step.
    examples: in this step, over all ranks.
    seconds: by phase: input, gradient, wire, update, wait.
    words_sent: by this rank, in this step.
    measures: what else the strategy measured, by name.
    state: () -> the state of the update, to resume from; collective, as params.
    memory: () -> what this rank alone holds, such as its reducer's state.
    epoch: epochs so far, where a step is one.
    replicas: whether all ranks hold equal params.
    """

    number: int
    loss: float
    params: Callable[[], Params]
    examples: int
    seconds: Mapping[str, float]
    words_sent: int
    measures: Mapping[str, float] = {}
    state: Callable[[], Any] = nothing
    memory: Callable[[], Any] = nothing
    epoch: int | None = None
    replicas: bool = False
