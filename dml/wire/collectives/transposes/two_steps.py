"""Hierarchical all-to-all: parts travel inside a group, then between groups."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Round
from dml.wire.collectives.rings.torus import grid
from dml.wire.collectives.transposes.pairwise import rows
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import SEGMENT


def two_step_all_to_all(comm: Comm, buffer: np.ndarray, group: int = 0) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        [0 1 2] [3 4 5]    step 1, inside: rank 0 sends the parts for 1 and 4 to 1
         │ │ │   │ │ │     step 2, across: rank 1 sends to 4 the parts that ranks 0, 1
         └─┼─┼───┘ │ │                     and 2 have for 4
           └─┼─────┘ │

    Rank l of a group collects the parts for the l-th ranks of all groups: there are
    few, long messages between groups. For p ranks in groups of g:
    g + p/g - 2 rounds, 2pn elements or fewer over all ranks:
    (g - 1)(α + n/g·β) + (p/g - 1)(α + gn/p·β).

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
      group: Number of consecutive ranks in a group, a divisor of p; 0 makes groups and
        their number as equal as possible.
    """
    comm, _, parts = rows(comm, buffer)
    groups, width = shape(comm.size, group)
    own, place = divmod(comm.rank, width)
    by_place = parts.reshape(groups, width, -1).swapaxes(0, 1).copy()
    inside = range(own * width, (own + 1) * width)
    by_source = exchange(comm, by_place, list(inside), place)
    by_group = by_source.reshape(width, groups, -1).swapaxes(0, 1).copy()
    across = range(place, comm.size, width)
    parts[...] = exchange(comm, by_group, list(across), own).reshape(parts.shape)


def shape(size: int, group: int) -> tuple[int, int]:
    """Return the number of groups and the ranks of each."""
    groups, width = grid(size, (size // group, group) if group else ())
    return groups, width


def exchange(comm: Comm, blocks: np.ndarray, ranks: list[int], own: int) -> np.ndarray:
    """Return the blocks that ranks send to this one; block k is for ranks[k]."""
    received, size, tag = np.empty_like(blocks), len(ranks), Tag.ALL_TO_ALL
    received[own] = blocks[own]
    for k in range(1, size):
        dest, source = (own + k) % size, (own - k) % size
        sent, kept = blocks[dest].reshape(-1), received[source].reshape(-1)
        comm.Sendrecv(sent, ranks[dest], tag, kept, ranks[source], tag)
    return received


def two_steps(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT, group: int = 0
) -> Iterator[Round]:
    """Yield the rounds of `two_step_all_to_all`; length: elements of all parts."""
    groups, width = shape(size, group)
    own, place = np.divmod(np.arange(size), width)
    part = length // size * itemsize
    for k in range(1, width):
        dest = own * width + (place + k) % width
        yield Round(np.arange(size), dest, full(size, groups * part), False)
    for k in range(1, groups):
        dest = (own + k) % groups * width + place
        yield Round(np.arange(size), dest, full(size, width * part), False)


def two_step_seconds(job: Job, rates: Rates, group: int = 0) -> float:
    """Return the seconds of `two_step_all_to_all`; exact on the uniform network."""
    groups, width = shape(job.size, group)
    part = job.length // job.size
    inside = (width - 1) * send_seconds(job, rates, groups * part)
    return inside + (groups - 1) * send_seconds(job, rates, width * part)
