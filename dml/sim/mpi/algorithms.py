"""The algorithms of collective calls, by the name of a set.

`mpich` selects as MPICH does, by the number of bytes; `tree` and `linear` always use
one kind; `ring` uses rings where the operation commutes.
"""

from typing import Any

from dml.sim.mpi.channel import Channel
from dml.sim.mpi.exchanges import (
    allgather_bruck,
    allgather_linear,
    allgather_ring,
    alltoall_bruck,
    alltoall_pairwise,
    barrier_dissemination,
    barrier_linear,
)
from dml.sim.mpi.reduce_trees import (
    allreduce_doubling,
    allreduce_halving,
    allreduce_linear,
    allreduce_ring,
    allreduce_tree,
    reduce_linear,
    reduce_scatter_halving,
    reduce_scatter_ring,
    reduce_tree,
    scan_doubling,
    scan_linear,
)
from dml.sim.mpi.trees import (
    bcast_linear,
    bcast_ring,
    bcast_tree,
    gather_linear,
    gather_tree,
    scatter_linear,
    scatter_tree,
)

# bytes of MPICH's choices (Thakur 2005)
BCAST, ALLREDUCE, ALLGATHER, ALLTOALL = 12288, 2048, 81920, 256
REDUCE_SCATTER = 1 << 19


def bcast(channel: Channel, value: Any, root: int) -> Any:
    small = channel.nbytes(value) < BCAST or channel.size < 8
    return (bcast_tree if small else bcast_ring)(channel, value, root)


def allgather(channel: Channel, value: Any, likes: Any) -> list[Any]:
    total = sum(channel.nbytes(like) for like in likes)
    return (allgather_bruck if total < ALLGATHER else allgather_ring)(
        channel, value, likes
    )


def alltoall(channel: Channel, values: Any, likes: Any) -> list[Any]:
    small = channel.size >= 8 and channel.nbytes(values[0]) <= ALLTOALL
    return (alltoall_bruck if small else alltoall_pairwise)(channel, values, likes)


def allreduce(channel: Channel, value: Any, op: Any) -> Any:
    small = channel.nbytes(value) <= ALLREDUCE
    return (allreduce_doubling if small else allreduce_halving)(channel, value, op)


def reduce_scatter(channel: Channel, value: Any, op: Any, ends: list[int]) -> Any:
    small = channel.nbytes(value) < REDUCE_SCATTER
    return (reduce_scatter_halving if small else reduce_scatter_ring)(
        channel, value, op, ends
    )


TREE = {
    "barrier": barrier_dissemination,
    "bcast": bcast_tree,
    "gather": gather_tree,
    "scatter": scatter_tree,
    "allgather": allgather_bruck,
    "alltoall": alltoall_bruck,
    "alltoallv": alltoall_pairwise,
    "reduce": reduce_tree,
    "allreduce": allreduce_tree,
    "reduce_scatter": reduce_scatter_halving,
    "scan": scan_doubling,
    # in rank order, of operations that do not commute
    "ordered_allreduce": allreduce_doubling,
}
COLLECTIVES: dict[str, dict[str, Any]] = {
    "mpich": TREE
    | {
        "bcast": bcast,
        "allgather": allgather,
        "alltoall": alltoall,
        "allreduce": allreduce,
        "reduce_scatter": reduce_scatter,
    },
    "tree": TREE,
    "ring": TREE
    | {
        "bcast": bcast_ring,
        "allgather": allgather_ring,
        "alltoall": alltoall_pairwise,
        "allreduce": allreduce_ring,
        "reduce_scatter": reduce_scatter_ring,
    },
    "linear": TREE
    | {
        "barrier": barrier_linear,
        "bcast": bcast_linear,
        "gather": gather_linear,
        "scatter": scatter_linear,
        "allgather": allgather_linear,
        "alltoall": alltoall_pairwise,
        "reduce": reduce_linear,
        "allreduce": allreduce_linear,
        "reduce_scatter": reduce_scatter_ring,
        "scan": scan_linear,
        "ordered_allreduce": allreduce_linear,
    },
}
