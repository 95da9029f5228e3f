"""The training loop of decentralised strategies: local updates, then a round of mixing.

    rank 0  x ─ update ─ update ┐        ┌ x ─ update ─ update ┐
    rank 1  x ─ update ─ update ┼ mixing ┼ x ─ update ─ update ┼ mixing
    rank 2  x ─ update ─ update ┘        └ x ─ update ─ update ┘

A protocol is a pair of functions of packed parameters. It sees the parameters before
and after the updates of a round, so their difference s is the step of this rank: -γ g
for one update by SGD. Parameters are evaluated as the mean over ranks.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.feed import feed
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.strategies.local import rounds
from dml.strategies.parameters import Update, make_parameters
from dml.types import BadInput, Comm, CountedComm, Params, Problem, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import Layout, layout, pack, unpack
from dml.wire.comm.metered import uncounted


class Protocol(NamedTuple):
    """How replicas are mixed after the updates of a round.

    Attributes:
      init: (packed start value, its layout) -> state, a pytree of arrays.
      mix: (comm, before, after, round, state) -> the next state. The vector `after` has
        this rank's parameters after its updates, and receives the mixed ones.
      model: (vector of this rank, state) -> vector whose mean over ranks is the result.
    """

    init: Callable[[np.ndarray, Layout], Any]
    mix: Callable[[Comm, np.ndarray, np.ndarray, int, Any], Any]
    model: Callable[[np.ndarray, Any], np.ndarray] = lambda vector, state: vector


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


def train_replicas(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    protocol: Protocol,
    *,
    comm: CountedComm,
    timer: Timer,
    every: int = 1,
    accumulate: int = 1,
    prefetch: int = 0,
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
    if every < 1:
        raise BadInput(
            f"expected rounds of 1 update or more, got {every=}; pass --local_every=<1 "
            "or more>"
        )
    parameters = make_parameters(problem, update, state)
    values, moments = parameters.averaged()
    like = layout(values)
    after = np.empty(like.length, np.result_type(*like.dtypes))
    pack(jax.device_get(values), after)
    mixing = Mixing(
        np.zeros(1, np.int64), after, moments, protocol.init(after.copy(), like)
    )
    if memory:
        mixing = restored(comm, mixing, memory)
        parameters.assign((unpack(mixing.vector, like), mixing.moments))
    split = partial(microbatches, rank=comm.rank, size=comm.size, parts=accumulate)
    fed = feed(problem.take, batches, split, parameters.put, prefetch)
    number = 0
    for minibatches in rounds(timer.waits("input", fed), every, 0):
        before = mixing.vector
        loss_sum, examples, total, sent = 0.0, 0, 0, comm.bytes_sent
        for count, parts in minibatches:
            shard = sum(part.examples for part in parts if part)
            number, total = number + 1, total + count
            if not shard:
                continue
            with timer("gradient"):
                loss, grads = parameters.mean_gradient(parts, shard)
                comm.platform.work(shard * comm.size / count)
            with timer("update"):
                parameters.apply(grads)
            loss_sum, examples = loss_sum + loss * shard, examples + shard
        with timer("wire"):
            values, moments = parameters.averaged()
            after = np.empty_like(before)
            pack(jax.device_get(values), after)
            t = int(mixing.round[0])
            mixed = protocol.mix(comm, before, after, t, mixing.state)
            parameters.assign((unpack(after, like), moments))
            mixing = Mixing(mixing.round + 1, after, moments, mixed)
        model = protocol.model(after, mixed)
        yield Step(
            number=number,
            loss=loss_sum / examples if examples else 0.0,
            params=partial(mean_params, comm, model, like),
            examples=total,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // after.itemsize,
            measures={"consensus": distance(comm, after)} if consensus else {},
            state=parameters.state,
            memory=mixing.saved,
        )


class Mixing(NamedTuple):
    """What differs between ranks after a round.

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


def restored(comm: Comm, mixing: Mixing, memory: Any) -> Mixing:
    """Return what this rank saved; raise BadInput on another number of ranks.

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


def mean_params(comm: CountedComm, vector: np.ndarray, like: Layout) -> Params:
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
