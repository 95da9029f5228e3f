"""The training loop of decentralised strategies: local updates, then a round of mixing.

    rank 0  x ─ update ─ update ┐        ┌ x ─ update ─ update ┐
    rank 1  x ─ update ─ update ┼ mixing ┼ x ─ update ─ update ┼ mixing
    rank 2  x ─ update ─ update ┘        └ x ─ update ─ update ┘

A protocol is a pair of functions of packed parameters. It sees the parameters before
and after the updates of a round, so their difference s is the step of this rank: -γ g
for one update by SGD. Parameters are evaluated as the mean over ranks.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial, update_wrapper
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import (
    TableParameters,
    Tree,
    Update,
    make_parameters,
)
from dml.strategies.loops.rounds import local_rounds, local_shards
from dml.types import BadInput, Comm, CountedComm, Params, Problem, Step
from dml.types.ranges import Count, Every, Size, checked
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import TreeLayout, layout, pack, unpack
from dml.wire.comm.metered import uncounted


class Protocol(NamedTuple):
    """How replicas are mixed after the updates of a round.

    Attributes:
      init: (packed start value, its layout) -> state, a pytree of arrays.
      mix: (comm, before, after, round, state) -> the next state. The vector `after` has
        this rank's parameters after its updates, and receives the mixed ones.
      model: (vector of this rank, state) -> vector whose mean over ranks is the result.
    """

    init: Callable[[np.ndarray, TreeLayout], Any]
    mix: Callable[[Comm, np.ndarray, np.ndarray, int, Any], Any]
    model: Callable[[np.ndarray, Any], np.ndarray] = lambda vector, state: vector


def strategy(protocol: Callable[..., Protocol]) -> Callable[..., Iterator[Step]]:
    """Return a strategy that trains replicas and mixes them by a protocol.

        @strategy
        def gossip(size: int, *, topology: str = "ring") -> Protocol: ...

    defines gossip(problem, batches, update, *, comm, topology="ring", timer, …) with
    the options of the protocol and those of `train_replicas`.

    Args:
      protocol: Function (number of ranks, *, options) -> Protocol.
    """
    options = keyword_only(protocol)

    def train(
        problem: Problem,
        batches: Iterable[np.ndarray],
        update: Update,
        *,
        comm: CountedComm,
        **own: Any,
    ) -> Iterator[Step]:
        chosen = {each.name: own.pop(each.name) for each in options if each.name in own}
        mixing = protocol(comm.size, **chosen)
        return train_replicas(problem, batches, update, mixing, comm=comm, **own)

    *common, _ = inspect.signature(train).parameters.values()
    known = {each.name: each for each in [*common, *options]}
    others = [each for each in keyword_only(train_replicas) if each.name not in known]
    signature = inspect.Signature([*known.values(), *others])
    train.__signature__ = signature  # type: ignore[attr-defined]
    return checked(update_wrapper(train, protocol))


def keyword_only(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the keyword-only parameters of a function."""
    named = inspect.signature(function).parameters.values()
    return [each for each in named if each.kind is each.KEYWORD_ONLY]


def stateless(mix: Callable[[Comm, np.ndarray, int], object]) -> Protocol:
    """Return the protocol that mixes parameters without a state.

    Args:
      mix: (comm, vector, round) -> None; in place.
    """

    def mix_after(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, state: None
    ) -> None:
        mix(comm, after, t)

    return Protocol(lambda start, like: None, mix_after)


@partial(checked, name="a decentralised strategy")
def train_replicas(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    protocol: Protocol,
    *,
    comm: CountedComm,
    timer: Timer,
    every: Every = 1,
    accumulate: Count = 1,
    prefetch: Size = 0,
    consensus: bool = False,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train a replica on each rank; yield a Step after every round of mixing.

    The loss of a Step is that of this rank's examples.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table; its state is not
        mixed.
      protocol: Mixing of the replicas.
      comm: Ranks.
      timer: Measures the phases.
      every: Number of updates in a round.
      accumulate: Number of microbatches of a rank's shard.
      prefetch: Number of minibatches prepared in the background.
      consensus: Whether each Step has the measure `consensus`, the mean squared
        distance of replicas to their mean; it takes an all-reduce that is not counted.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    parameters = make_parameters(problem, update, state)
    like = layout(parameters.averaged()[0])
    mixing = start(comm, parameters, protocol, like, memory)
    shards = local_shards(problem, batches, parameters, comm, accumulate, prefetch)
    for done in local_rounds(shards, parameters, comm, timer, every):
        sent = comm.bytes_sent
        with timer("wire"):
            mixing = mix(comm, parameters, protocol, like, mixing)
        vector = mixing.vector
        model = protocol.model(vector, mixing.state)
        yield Step(
            number=done.number,
            loss=done.loss,
            params=partial(mean_params, comm, model, like),
            examples=done.total,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // vector.itemsize,
            measures={"consensus": distance(comm, vector)} if consensus else {},
            state=parameters.state,
            memory=mixing.saved,
        )


class Mixing(NamedTuple):
    """State of a rank after a round of mixing.

    Attributes:
      round: Number of rounds so far, in an array.
      vector: Packed parameters.
      moments: Moments of the optimizer.
      state: State of the protocol.
    """

    round: np.ndarray
    vector: np.ndarray
    moments: Any
    state: Any

    def saved(self) -> Any:
        """Return the arrays of a checkpoint."""
        return jax.device_get(self)


def start(
    comm: Comm,
    parameters: Tree | TableParameters,
    protocol: Protocol,
    like: TreeLayout,
    memory: Any,
) -> Mixing:
    """Return the state before the first round, or a saved state.

    Args:
      comm: Ranks.
      parameters: Parameters of this rank; replaced by saved parameters.
      protocol: Mixing of the replicas.
      like: Layout of the packed parameters.
      memory: Leaves of each saved rank; None starts anew.
    """
    vector, moments = packed(parameters, like)
    state = protocol.init(vector.copy(), like)
    mixing = Mixing(np.zeros(1, np.int64), vector, moments, state)
    if memory:
        mixing = restored(comm, mixing, memory)
        parameters.assign((unpack(mixing.vector, like), mixing.moments))
    return mixing


def mix(
    comm: Comm,
    parameters: Tree | TableParameters,
    protocol: Protocol,
    like: TreeLayout,
    mixing: Mixing,
) -> Mixing:
    """Mix the parameters with those of other ranks; return the state after the round.

    Args:
      comm: Ranks.
      parameters: Parameters after the updates of the round; replaced by the mixture.
      protocol: Mixing of the replicas.
      like: Layout of the packed parameters.
      mixing: State after the previous round.
    """
    after, moments = packed(parameters, like)
    t = int(mixing.round[0])
    state = protocol.mix(comm, mixing.vector, after, t, mixing.state)
    parameters.assign((unpack(after, like), moments))
    return Mixing(mixing.round + 1, after, moments, state)


def packed(
    parameters: Tree | TableParameters, like: TreeLayout
) -> tuple[np.ndarray, Any]:
    """Return the parameters as a vector, and the moments of the optimizer."""
    values, moments = parameters.averaged()
    vector = np.empty(like.length, np.result_type(*like.dtypes))
    pack(jax.device_get(values), vector)
    return vector, moments


def restored(comm: Comm, mixing: Mixing, memory: Any) -> Mixing:
    """Return the saved state of this rank; raise BadInput on another number of ranks.

    Args:
      comm: Ranks.
      mixing: State at the start, with arrays of the same shapes.
      memory: Leaves of each saved rank.
    """
    leaves, structure = jax.tree.flatten(mixing.saved())
    own = memory[comm.rank] if len(memory) == comm.size else []
    if [np.shape(x) for x in leaves] != [np.shape(x) for x in own]:
        raise BadInput(
            f"expected the strategy and the {len(memory)} ranks of the run to resume, "
            f"whose replicas differ, got {comm.size} ranks; start as many"
        )
    saved: Mixing = jax.tree.unflatten(structure, own)
    return saved


def mean_params(comm: CountedComm, vector: np.ndarray, like: TreeLayout) -> Params:
    """Return the mean of the vectors of all ranks as parameters; collective."""
    mean = vector / vector.dtype.type(comm.size)
    tree_allreduce(uncounted(comm), mean)
    return unpack(mean, like)


def distance(comm: CountedComm, vector: np.ndarray) -> float:
    """Return the mean squared distance of the ranks' vectors to their mean."""
    inner, mean = uncounted(comm), vector.astype(np.float64) / comm.size
    tree_allreduce(inner, mean)
    squares = np.array([np.vdot(vector - mean, vector - mean) / comm.size])
    tree_allreduce(inner, squares)
    return float(squares[0])
