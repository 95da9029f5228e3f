"""Models, problems, minibatches, and the steps of training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types.defaults import identity, no_op

Params = Any  # a pytree of arrays
Grads = Any  # a pytree shaped like Params: the input of an optimizer
STATISTICS = "statistics"  # name of the params that are running statistics


class Batch(NamedTuple):
    """One minibatch; the first axis of every array is over examples."""

    inputs: Any
    targets: Any


class KeyedTokens(NamedTuple):
    """Inputs of a training batch with dropout: tokens, and a random key per token."""

    tokens: Any  # int, examples x positions
    keys: Any  # uint32, examples x positions


class Examples(NamedTuple):
    """Lazily built data: `take` returns the minibatch of an array of draw numbers.

    Draw d is example d % count in epoch d // count. Random choices, such as which
    tokens are masked, depend on the draw number alone.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    take: Callable[[np.ndarray], Batch]


class Layer(NamedTuple):
    """A part of a model. The first layer gets None, the last returns the loss."""

    names: tuple[str, ...]  # of the params that it reads; layers may share params
    # (params of the layer by name, output of the previous layer, batch) -> output
    apply: Callable[[Mapping[str, Params], Any, Any], Any]


class Model(NamedTuple):
    """Pure functions of a model; the loss is the mean over the batch's examples.

    The type of a batch is Batch, unless the model documents another one.
    """

    init: Callable[[Any], Params]  # random key -> params
    loss: Callable[[Params, Any], Any]  # -> scalar
    metrics: Callable[[Params, Any], Mapping[str, Any]]  # -> means over the batch
    layers: Sequence[Layer] = ()  # compose the loss; params are then a mapping by name
    # (params, inputs of a batch) -> logits
    scores: Callable[[Params, Any], Any] | None = None


class Tensor(NamedTuple):
    """A model sharded over the mesh axis `tensor`.

    Inside shard_map the layers take the slices of a device and return the total loss.
    """

    layers: Sequence[Layer]
    specs: Any  # a tree like params: PartitionSpec of each leaf
    partial: Any  # a tree like params: whether gradients are summed over the axis


class Problem(NamedTuple):
    """A learning problem: a start value, and the gradient of a loss by minibatches.

    Strategies read a minibatch with `take`, which may run in the background; its
    result is the argument of `gradient` and `touched`.

    The fields from `touched` on are optional; `dml.strategies` lists the fields that
    each strategy needs.

    Attributes:
      params: Start value: a pytree of arrays, or one table, which is an array of rows.
      examples: Number of examples. A minibatch is an array of their indices.
      gradient: (params, batch) -> the mean loss over the batch, and the gradient: a
        tree like params, or the Rows of a table that the batch touches. The gradient is
        valid until the next call.
      evaluate: params -> measures by name.
      take: indices -> batch; by default the indices themselves.
      touched: batch -> the distinct rows that its gradient reads and changes.
      frequency: Number of examples that touch each row; None if all are equal.
      kernel: A Kernel: compiled sequential in-place descent over examples.
      products: Inner products of rows, for tables whose columns are split over ranks:
        `split(rank, size)` -> (table of the rank's columns, terms, gradient), where
        terms is (table, batch) -> the rank's terms of the products, and gradient is
        (table, batch, summed products) -> the mean loss, and the update's arguments;
        `join(tables)` -> the table of all columns. That of a linear model also has
        `block`, for the strategies of `dml.strategies.linear`.
      model: JAX model whose loss `gradient` differentiates.
      table: () -> the same problem with one table of rows as params.
      play: Acting part, a Play, for strategies whose batches are played by actors.
      sums: True if gradients are of the summed loss instead of the mean; parts of a
        minibatch are then added without weights.
    """

    params: Params
    examples: int
    gradient: Any
    evaluate: Callable[[Params], Mapping[str, Any]]
    take: Callable[[np.ndarray], Any] = identity
    touched: Callable[[Any], np.ndarray | slice] | None = None
    frequency: np.ndarray | None = None
    kernel: Any = None
    products: Any = None
    model: "Model | None" = None
    table: "Callable[[], Problem] | None" = None
    play: Any = None
    sums: bool = False


class Step(NamedTuple):
    """The result of one update, or of several, yielded by a strategy.

    Attributes:
      number: Number of updates so far.
      loss: Mean loss over this step's examples; each loss is computed before the update
        to which its example contributes.
      params: () -> the parameters after the update. Collective. Returns the value on
        rank 0, and on every rank if `replicas` is true. Valid until the next step.
      examples: Number of examples in this step, over all ranks.
      seconds: Seconds of this rank by phase: input, gradient, wire, update, wait.
      words_sent: Number of buffer elements that this rank sent in this step.
      measures: Further measurements of the strategy, by name.
      state: () -> the state of the update, for resuming; collective, as `params`.
      memory: () -> the state that differs between ranks, such as that of a reducer.
      epoch: Number of epochs so far; None if a step is not an epoch.
      replicas: True if all ranks have equal params.
    """

    number: int
    loss: float
    params: Callable[[], Params]
    examples: int
    seconds: Mapping[str, float]
    words_sent: int
    measures: Mapping[str, float] = {}
    state: Callable[[], Any] = no_op
    memory: Callable[[], Any] = no_op
    epoch: int | None = None
    replicas: bool = False
