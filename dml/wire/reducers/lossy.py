"""Reducers that lose information, with and without error feedback.

    term + error ──► sum over ranks ──► mean
       ▲                  │
       └── error ◄── what the codes of this rank lack

Error feedback (Seide 2014, Karimireddy 2019) adds to each term what earlier steps did
not send: everything sent plus the last errors is the sum of all terms. Biased codes
need it to converge; for unbiased codes it would only add variance.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.types import STATISTICS, AllReduce, BadInput, Comm, Memory, Reducer
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.plain import as_comm
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import seed_of, stream_of
from dml.wire.reducers.transports import Transport, automatic

# (comm, term, lost, common) -> next common. The term receives the sum over ranks.
# `lost`, which is zero, receives this rank's part of what the sum lacks: the result
# plus `lost` of all ranks is the sum of the terms. None: it is not needed.
Sum = Callable[[Comm, np.ndarray, np.ndarray | None, Any], Any]
Steps = dict[int, np.ndarray]  # stream of random numbers -> number of steps


class Lossy(NamedTuple):
    """A sum over ranks that loses information.

    Attributes:
      init: layout of the gradient -> arrays that are equal on all ranks.
      sum: See `Sum`.
      unbiased: Whether the expected sum is exact.
    """

    init: Callable[[TreeLayout], Any]
    sum: Sum
    unbiased: bool = False


def coded(codec: Codec, transport: Transport = automatic) -> Lossy:
    """Return the sum of decoded terms.

    Args:
      codec: Code of a term.
      transport: Sums the codes of all ranks; a value of `transports.TRANSPORTS`.
    """

    def start(layout: TreeLayout) -> Steps:
        return {stream_of(layout): np.zeros(1, np.int64)}

    def add_up(comm: Comm, term: np.ndarray, lost: Any, steps: Steps) -> Steps:
        ((stream, step),) = steps.items()
        seed = seed_of(int(step[0]), comm.rank, stream)
        transport(codec, comm, term, lost, seed)
        return {stream: step + 1}

    return Lossy(start, add_up, codec.unbiased)


def compressed(lossy: Lossy, allreduce: AllReduce, feedback: bool = False) -> Reducer:
    """Return the reducer of a lossy sum.

    Args:
      lossy: Sum of the gradients.
      allreduce: Sums the scalars after the gradient exactly.
      feedback: Whether to add the error of earlier steps to each term.
    """
    if feedback and lossy.unbiased:
        raise BadInput(
            "expected a biased code with feedback, got an unbiased one, whose errors "
            "cancel out over steps by themselves; leave +feedback out"
        )

    def init(layout: TreeLayout) -> Memory:
        error = np.zeros(layout.length, np.float32) if feedback else None
        return Memory(error, lossy.init(layout))

    def reduce(comm: Comm, gradient: np.ndarray, memory: Memory) -> Memory:
        error, common = memory
        if error is None:
            return Memory(None, lossy.sum(comm, gradient, None, common))
        gradient += error
        lost = np.zeros_like(error)
        common = lossy.sum(comm, gradient, lost, common)
        return Memory(lost, common)

    return float32_reducer(init, reduce, allreduce)


def float32_reducer(
    init: Callable[[TreeLayout], Memory],
    reduce: Callable[[Comm, np.ndarray, Memory], Memory],
    allreduce: AllReduce,
) -> Reducer:
    """Return a reducer of float32 gradients whose scalars are summed exactly.

    Args:
      init: layout of the gradient -> state of a rank.
      reduce: (comm, gradient, state) -> the next state. The gradient is not empty.
      allreduce: Sums the scalars.
    """

    # The length is in the structure of the state, which is not saved with its leaves.
    def init_with_length(layout: TreeLayout) -> dict[int, Memory]:
        return {layout.length: init(layout)}

    def reduce_gradient(
        comm: Comm, buffer: np.ndarray, state: dict[int, Memory]
    ) -> dict[int, Memory]:
        comm = as_comm(comm)
        ((length, memory),) = state.items()
        gradient, scalars = buffer[:length], buffer[length:]
        if buffer.dtype != np.float32:
            raise BadInput(
                f"rank {comm.rank}: expected float32 for a compressed gradient, got "
                f"{buffer.dtype}; pass --reduce=exact"
            )
        if length:
            memory = reduce(comm, gradient, memory)
        if len(scalars):
            allreduce(comm, scalars, op=np.add)
        return {length: memory}

    return Reducer(init_with_length, reduce_gradient)


def refuse_statistics(layout: TreeLayout, name: str) -> None:
    """Raise BadInput if a layout has running statistics, for a reducer with momentum.

    Their gradient is a difference that the update rule subtracts as it is.
    """
    if layout.tree is None:
        return
    import jax

    leaves = jax.tree.unflatten(layout.tree, layout.shapes)
    paths = jax.tree_util.tree_leaves_with_path(
        leaves, is_leaf=lambda node: isinstance(node, tuple)
    )
    for path, _ in paths:
        if STATISTICS in [getattr(entry, "key", None) for entry in path]:
            raise BadInput(
                f"expected a model without running statistics with --reduce={name}, "
                f"got {jax.tree_util.keystr(path)}; pass another --reduce, or a model "
                "without batch normalisation"
            )
