"""Lower bound of the seconds of an all-reduce by a linear program of loads.

    x_ab    bytes from rank a to rank b, per byte of the buffer
    T       seconds per byte: at least the sum of β·x_ab over each link and each port

Each set of ranks sends a word to the others and receives one, for each word of the
buffer. Between k parts 2(k-1) words pass: before one of them, the first, has received
all that the sum needs, a word from each of the other k-1 parts has arrived somewhere;
afterwards a word arrives at each of these. The β of an in port is that of the slowest
link, for whose time the message occupies the port. The loads of any all-reduce satisfy
all of this, whatever the order and the size of its messages, so its seconds are at
least T. Cuts that the loads of the last program violate are found by maximum flows and
added; with only some of the cuts the least T is smaller, and also a lower bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml.sim.networks import partitions
from dml.sim.networks.partitions import UNITS, UNLIMITED, Capacities
from dml.wire.plans.packing import Routes

MOST = 16  # ranks
PROGRAMS = 40
MISSING = 1e-4  # words of a violated cut
ROUNDING = 1e-6  # of the linear program


class Cut(NamedTuple):
    """Parts of the ranks; with one word, those from part 0 to part 1 are counted."""

    parts: tuple[int, ...]  # by rank
    words: int  # that pass at least


def byte_seconds(routes: Routes) -> float:
    """Return the lower bound in seconds per byte of the buffer."""
    from scipy.optimize import linprog

    size = len(routes.links)
    pairs = [(a, b) for a, b in np.ndindex(size, size) if a != b]
    usage_LxM = np.zeros((routes.number, len(pairs)))
    for k, (a, b) in enumerate(pairs):
        usage_LxM[routes.links[a][b], k] += routes.seconds[a][b]
    unit = usage_LxM.max() or 1.0
    most = np.append(usage_LxM / unit, np.full((routes.number, 1), -1.0), 1)
    cost = np.append(np.zeros(len(pairs)), 1.0)  # the last variable: T
    ends: np.ndarray = np.array(pairs).T
    cuts = first_cuts(size)
    for _ in range(PROGRAMS):
        rows = [np.append(-passes(cut, ends), 0.0) for cut in cuts]
        limits = np.append(np.zeros(len(most)), [-cut.words for cut in cuts])
        found = linprog(cost, np.append(most, np.array(rows), 0), limits).x
        loads = found[:-1]
        more = {
            cut
            for cut in likely_cuts(loads, ends, size)
            if passes(cut, ends) @ loads < cut.words - MISSING
        }
        if more <= {*cuts}:
            break
        cuts += sorted(more - {*cuts})
    return float(found[-1] * unit) * (1 - ROUNDING)


def passes(cut: Cut, ends: np.ndarray) -> np.ndarray:
    """Return 1 for each pair of ranks whose messages pass the cut."""
    source, dest = np.array(cut.parts)[ends]
    return np.where(cut.words == 1, source < dest, source != dest).astype(float)


def first_cuts(size: int) -> list[Cut]:
    """Return the cuts of single ranks."""
    alone = np.eye(size, dtype=int)
    both = [*alone.tolist(), *(1 - alone).tolist()]
    every = Cut(tuple(range(size)), 2 * (size - 1))
    return [*(Cut(tuple(parts), 1) for parts in both), every]


def likely_cuts(loads: np.ndarray, ends: np.ndarray, size: int) -> Iterator[Cut]:
    """Yield cuts that the loads pass least."""
    units = np.round(loads * UNITS).astype(np.int32)
    graph = Capacities(ends[0], ends[1], units, size, 1.0)
    full = np.array([UNLIMITED])
    for rank in range(1, size):
        for source, sink in ((0, rank), (rank, 0)):
            ports = (np.array([source]), full), (np.array([sink]), full)
            _, inside = partitions.minimum_cut(graph, *ports)
            yield Cut(tuple(inside[:size].astype(int).tolist()), 1)
    parts = partitions.cheapest(graph, size, UNITS)
    of_rank = np.zeros(size, int)
    for number, part in enumerate(parts):
        of_rank[part] = number
    if len(parts) > 1:
        yield Cut(tuple(of_rank.tolist()), 2 * (len(parts) - 1))
