"""Hierarchical all-reduce: little traffic between groups, as their links are slow."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Groups, Op
from dml.wire.collectives.reduce_scatter import ring_order
from dml.wire.collectives.ring import ring_allreduce, ring_gather, ring_scatter
from dml.wire.collectives.shared import shared_gather, shared_scatter
from dml.wire.comm.buffers import flat
from dml.wire.comm.once import once, one_host
from dml.wire.comm.plain import as_comm
from dml.wire.plans.topology import chunks, groups


def hierarchical_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    group: int | Sequence[int] = 0,
    outside: Callable[..., None] = ring_allreduce,
) -> None:
    """Reduce in place over all ranks: inside groups, and across groups.

        [0  1  2  3] [4  5  6  7]   inside: reduce-scatter, rank l gets chunk l
         │  │  │  │   │  │  │  │    across: all-reduce of chunk l between the
         └──┼──┼──┼───┘  │  │  │            l-th ranks of all groups
            └──┼──┼──────┘  │  │    inside: all-gather
               …

    With several levels the all-reduce of chunk l is hierarchical, too: group=(8, 16)
    makes groups of 8 ranks and groups of 16 such groups.

    A group on one host reduces in shared memory. There are as many chunks as the
    smallest group has ranks; in a larger group the other ranks have no chunk.
    With groups of g ranks, rings inside (α_i, β_i) and across groups (α_a, β_a), and
    without the time of additions:
    2(g-1)α_i + 2(g-1)/g·nβ_i + 2(p/g-1)α_a + 2(p/g-1)/(p/g)·(n/g)β_a.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      group: Number of consecutive members in a group, for each level from the inside;
        0 makes each host a group.
      outside: The all-reduce across the groups of the last level.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    width, *further = (group,) if isinstance(group, int) else group
    if further:
        outside = nested(tuple(further), outside)
    inside, across, owners = communicators(comm, width, outside)
    parts = chunks(len(buffer), owners)
    parts += (slice(len(buffer), len(buffer)),) * (inside.size - owners)
    chunk = buffer[parts[inside.rank]]
    if not one_host(inside):
        ring_scatter(inside, buffer, ring_order(parts), op)
        if inside.rank < owners:
            outside(across, chunk, op)
        ring_gather(inside, buffer, ring_order(parts))
    else:
        buffers = shared_scatter(inside, buffer, parts, op)
        if inside.rank < owners:
            outside(across, chunk, op)
        shared_gather(inside, buffer, parts, buffers)


@cache
def nested(group: tuple[int, ...], outside: Callable[..., None]) -> Callable[..., None]:
    """Return the hierarchical all-reduce of further levels, always the same object."""
    return partial(hierarchical_allreduce, group=group, outside=outside)


def communicators(comm: Comm, width: int, outside: Callable[..., None]) -> Groups:
    """Return this rank's communicators of groups; collective at the first call.

    Args:
      comm: The ranks.
      width: Number of consecutive ranks in a group; 0 makes each host a group.
      outside: The all-reduce across groups.
    """
    made = comm.cache.groups.get((width, outside))
    if made is None:
        layout = once(comm, "groups", width, lambda: Layout.build(comm, width))
        group, place = layout.places[comm.rank]
        inside = comm.Split(group, place)
        inside.cache.parent = comm, layout.members[group]
        across = comm.Split(place, group)
        outside(across, np.empty(0))  # `outside` sets up its caches, collectively
        made = Groups(inside, across, layout.owners)
        comm.cache.groups[width, outside] = made
    return made


class Layout(NamedTuple):
    """The division of ranks into groups."""

    members: tuple[tuple[int, ...], ...]  # ranks of each group
    places: list[tuple[int, int]]  # by rank: its group, and its place in the group
    owners: int  # number of ranks with a chunk in each group

    @staticmethod
    def build(comm: Comm, width: int) -> "Layout":
        members = groups(comm.platform.hosts(), width)
        places = [(0, 0)] * comm.size
        for group, ranks in enumerate(members):
            for place, rank in enumerate(ranks):
                places[rank] = group, place
        return Layout(members, places, min(map(len, members)))
