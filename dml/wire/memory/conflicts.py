"""Which worker takes which edges of a block, so that none meets another's rows.

Edges in blocks and rows to be treated apart in; a Plan out, made once (CYCLADES, Pan
2016). Two edges of a block conflict where they share a row: connected ones go together.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges

LINE = 16  # rows that one worker has: no two write to one cache line


class Plan(NamedTuple):
    """Worker w of block b takes edges[starts[c] : starts[c + 1]], c = b·workers + w.

    They rise. Each row apart belongs to one worker, in all blocks: of edge e those of
    worker w are its slots[later[c] : later[c + 1]], c = e·workers + w, which rise too;
    slot s is the row edges.rows[edges.starts[e] + s].
    """

    starts: np.ndarray  # int64
    edges: np.ndarray  # int64
    later: np.ndarray  # int64
    slots: np.ndarray  # int32
    apart: np.ndarray  # uint8, by row


def plan(edges: Edges, batch: int, workers: int, apart: np.ndarray) -> Plan:
    """Cut edges into blocks of a batch and deal each block to workers.

    Largest components go first, to whoever has least; so do lines of rows apart, by how
    many edges they are in. Time is nearly linear in rows.

        a block of 5            conflicts    workers
        edge 0   rows 1 4        0 ── 2      worker 0: edges 0 2 3
        edge 1   rows 0 5             │      worker 1: edges 1 4
        edge 2   rows 1 2 6      1    3
        edge 3   rows 6 7                    row 5 is apart and connects nothing:
        edge 4   rows 3 5           4        one worker changes it after all of them
    """
    count = _blocks(edges, batch, apart)
    if workers < 1:
        raise BadInput(f"expected 1 worker or more, got {workers=}; pass another count")
    apart = np.ascontiguousarray(apart, np.uint8)
    starts = np.zeros(count * workers + 1, np.int64)
    dealt = np.empty(len(edges.starts) - 1, np.int64)
    _deal_edges(edges, batch, workers, _roots(edges, batch, apart), (starts, dealt))
    if not apart.any():
        nothing = np.zeros(1, np.int64)
        return Plan(starts, dealt, nothing, np.empty(0, np.int32), apart)
    degrees = np.where(apart, np.bincount(edges.rows, minlength=len(apart)), 0)
    lines = np.add.reduceat(degrees, np.arange(0, len(apart), LINE))
    owners = np.repeat(deal(lines, workers), LINE)  # a few more than there are rows
    later, slots = _later(edges, workers, apart, owners)
    return Plan(starts, dealt, later, slots, apart)


def component_sizes(edges: Edges, batch: int, apart: np.ndarray) -> list[np.ndarray]:
    """Return how many edges the components of each block have, the largest first."""
    count = _blocks(edges, batch, apart)
    roots = _roots(edges, batch, np.ascontiguousarray(apart, np.uint8))
    found = []
    for block in range(count):
        sizes = np.bincount(roots[block * batch : (block + 1) * batch])
        found.append(np.sort(sizes[sizes > 0])[::-1])
    return found


def hubs(edges: Edges, width: int, share: float) -> np.ndarray:
    """Mark the rows that more than this share of the edges touch; 0: every row."""
    if not share >= 0:
        raise BadInput(f"expected a share of 0 or more, got {share=}; pass such a one")
    degrees = np.bincount(edges.rows, minlength=width)
    return (degrees > share * (len(edges.starts) - 1)) | (share == 0)


def _blocks(edges: Edges, batch: int, apart: np.ndarray) -> int:
    """Return the number of blocks, after a look at what came."""
    if batch < 1:
        raise BadInput(f"expected 1 edge a batch or more, got {batch=}; pass --batch=1")
    width = int(edges.rows.max()) + 1 if len(edges.rows) else 0
    if len(apart) < width:
        raise BadInput(
            f"expected a mark for each of {width} rows, got {len(apart)}; make it of "
            "the table's length"
        )
    return -(-(len(edges.starts) - 1) // batch)


@njit(nogil=True, cache=True)
def find(parents, e):
    """Return the root of an edge, and halve the path to it."""
    while parents[e] != e:
        parents[e] = parents[parents[e]]
        e = parents[e]
    return e


@njit(nogil=True, cache=True)
def connect(edges, first, last, apart, owners, parents):
    """Give edges first … last - 1 parents; a root is the lowest edge of its component.

    An owner is the edge that touched a row last, and of no meaning if below first: so
    nothing is reset between blocks.
    """
    for e in range(first, last):
        parents[e - first] = root = e - first
        for k in range(edges.starts[e], edges.starts[e + 1]):
            row = edges.rows[k]
            if apart[row]:
                continue
            if owners[row] >= first:
                other = find(parents, owners[row] - first)
                parents[max(root, other)] = min(root, other)
                root = min(root, other)
            owners[row] = e
    for place in range(last - first):  # parents are lower: theirs are roots already
        parents[place] = parents[parents[place]]


@njit(nogil=True, cache=True)
def _roots(edges, batch, apart):
    """Return the root of each edge, by its place in its block."""
    count = len(edges.starts) - 1
    owners, roots = np.full(len(apart), -1), np.empty(count, np.int64)
    for first in range(0, count, batch):
        last = min(first + batch, count)
        connect(edges, first, last, apart, owners, roots[first:last])
    return roots


@njit(nogil=True, cache=True)
def deal(sizes, workers):
    """Return who takes what: largest first, the first of equals, to who has least."""
    most = sizes[0]
    for size in sizes:
        most = max(most, size)
    ends = np.zeros(most + 1, np.int64)
    for size in sizes:
        ends[size] += 1
    for size in range(most, 0, -1):  # a counting sort, falling
        ends[size - 1] += ends[size]
    order, takers = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    for k in range(len(sizes) - 1, -1, -1):
        ends[sizes[k]] -= 1
        order[ends[sizes[k]]] = k
    loads = np.zeros(workers, np.int64)
    for item in order:
        least = 0
        for worker in range(1, workers):
            if loads[worker] < loads[least]:
                least = worker
        takers[item] = least
        loads[least] += sizes[item]
    return takers


@njit(nogil=True, cache=True)
def spread(takers, starts):
    """Return the place of each item, by takers, then rising; starts[0] is known."""
    for worker in range(1, len(starts)):
        starts[worker] = 0
    for taker in takers:
        starts[taker + 1] += 1
    for worker in range(len(starts) - 1):
        starts[worker + 1] += starts[worker]
    ends, places = starts.copy(), np.empty(len(takers), np.int64)
    for k in range(len(takers)):
        places[k] = ends[takers[k]]
        ends[takers[k]] += 1
    return places


@njit(nogil=True, cache=True)
def _deal_edges(edges, batch, workers, roots, found):
    """Deal block after block."""
    starts, dealt = found
    for block in range((len(starts) - 1) // workers):
        first = block * batch
        last = min(first + batch, len(roots))
        sizes = np.zeros(last - first, np.int64)
        for e in range(first, last):
            sizes[roots[e]] += edges.starts[e + 1] - edges.starts[e]
        by_root = deal(sizes, workers)
        takers = np.empty(last - first, np.int64)
        for e in range(first, last):
            takers[e - first] = by_root[roots[e]]
        cell = block * workers
        places = spread(takers, starts[cell : cell + workers + 1])
        for e in range(first, last):
            dealt[places[e - first]] = e


@njit(nogil=True, cache=True)
def _later(edges, workers, apart, owners):
    """Sort the rows apart of each edge by their owners."""
    count = len(edges.starts) - 1
    starts = np.zeros(count * workers + 1, np.int64)
    for e in range(count):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if apart[edges.rows[k]]:
                starts[e * workers + owners[edges.rows[k]] + 1] += 1
    for cell in range(count * workers):
        starts[cell + 1] += starts[cell]
    ends, slots = starts.copy(), np.empty(starts[-1], np.int32)
    for e in range(count):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if apart[edges.rows[k]]:
                cell = e * workers + owners[edges.rows[k]]
                slots[ends[cell]] = k - edges.starts[e]
                ends[cell] += 1
    return starts, slots
