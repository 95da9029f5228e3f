"""All-reduce by routers that add (Graham 2016: SHARP; Sapio 2021: SwitchML)."""

from collections.abc import Iterator

import numpy as np

from dml.types import PROC_NULL, Comm, Op, Round, ufunc_of
from dml.wire.collectives.trees.run import PIECE, steps
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.broadcasts import broadcast_rounds
from dml.wire.plans.in_network import Tree, pieces_of


def in_network_allreduce(
    tree: Tree,
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = PIECE,
) -> None:
    """Reduce in place over the ranks of a tree of routers.

         adder ── sum ──► copier        of the root; a piece of the buffer at a time
         ▲  ▲  ▲          │  │  │
         0  1  2          0  1  2       ranks, or other routers

    All nodes of the tree take part, with buffers of equal length; those of the routers
    are overwritten. An adder adds its children in their order, routers before ranks.
    A rank sends n elements, half as many as in a ring. With m bytes in a piece, at most
    the `eager` ones of the network, and d levels, without the time of hops and of
    additions: (n/m + 2d - 1)(α + mβ).

    Args:
      tree: The routers, from `sim.networks.adding`.
      comm: The ranks, the adders and the copiers.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a piece.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    adds = tree.ranks <= comm.rank < tree.ranks + tree.routers
    memory, tag = np.empty_like(buffer), Tag.BROADCAST
    for turn, sent, target in steps(pieces_of(tree), comm, buffer, 0, segment):
        received = memory[: len(target)] if adds and turn.adds else target
        dest = PROC_NULL if turn.dest is None else turn.dest
        source = PROC_NULL if turn.source is None else turn.source
        comm.Sendrecv(sent, dest, tag, received, source, tag)
        if received is not target:
            ufunc_of(op)(target, received, out=target)


def in_network(
    tree: Tree, length: int, itemsize: int = 4, segment: int = PIECE
) -> Iterator[Round]:
    """Yield the rounds of `in_network_allreduce`; additions take no time."""
    yield from broadcast_rounds(pieces_of(tree), tree.nodes, length, itemsize, segment)


def in_network_seconds(tree: Tree, job: Job, rates: Rates) -> float:
    """Return the seconds of all slots: exact on one router, else an upper bound."""
    most = max(1, min(job.segment, PIECE) // job.itemsize)
    pieces = max(1, -(-job.length // most))
    slots = pieces + 2 * int(tree.depths.max()) - 1
    return slots * send_seconds(job, rates, -(-job.length // pieces))
