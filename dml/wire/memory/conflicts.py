"""Plans of CYCLADES (Pan 2016): a worker for each edge of a block, without conflicts.

Two edges of a block conflict where they share a row that is not apart. The edges of a
connected component have the same worker.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges

LINE = 16  # consecutive rows of one worker: no two workers write to a cache line


class Plan(NamedTuple):
    """The edges of each worker and block, and the rows apart of each worker and edge.

    Worker w of block b has edges[starts[c] : starts[c + 1]], c = b·workers + w, in
    rising order. Each row apart has one worker, in all blocks: of edge e, worker w has
    slots[later[c] : later[c + 1]], c = e·workers + w, in rising order. Slot s is the
    row edges.rows[edges.starts[e] + s].
    """

    starts: np.ndarray  # int64
    edges: np.ndarray  # int64
    later: np.ndarray  # int64
    slots: np.ndarray  # int32
    apart: np.ndarray  # uint8, by row


def plan(edges: Edges, batch: int, workers: int, apart: np.ndarray) -> Plan:
    """Cut edges into blocks of a batch and deal each block to workers.

    The largest component is dealt first, each to the worker with the fewest rows. Lines
    of rows apart are dealt alike, by the number of their edges. Time is nearly linear
    in rows.

        a block of 5            conflicts    workers
        edge 0   rows 1 4        0 ── 2      worker 0: edges 0 2 3
        edge 1   rows 0 5             │      worker 1: edges 1 4
        edge 2   rows 1 2 6      1    3
        edge 3   rows 6 7                    row 5 is apart and connects nothing:
        edge 4   rows 3 5           4        one worker changes it after the block
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
    """Return the edges of the components of each block, the largest first."""
    count = _blocks(edges, batch, apart)
    roots = _roots(edges, batch, np.ascontiguousarray(apart, np.uint8))
    found = []
    for block in range(count):
        sizes = np.bincount(roots[block * batch : (block + 1) * batch])
        found.append(np.sort(sizes[sizes > 0])[::-1])
    return found


def hubs(edges: Edges, width: int, share: float) -> np.ndarray:
    """Return a mask of the rows in more than this share of the edges; 0: all rows."""
    if not share >= 0:
        raise BadInput(f"expected a share of 0 or more, got {share=}; pass --hubs=1")
    degrees = np.bincount(edges.rows, minlength=width)
    return (degrees > share * (len(edges.starts) - 1)) | (share == 0)


def _blocks(edges: Edges, batch: int, apart: np.ndarray) -> int:
    """Check the arguments; return the number of blocks."""
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
    """Set the parents of edges first … last - 1; a root is a component's lowest edge.

    The owner of a row is the last edge that touched it. Owners below `first` are of
    earlier blocks and are not read, so nothing is reset between blocks.
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
    """Return the worker of each item: the largest first, to the least loaded worker."""
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
    """Return the place of each item, sorted by takers; starts[0] is given."""
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
    """Deal the edges of each block to workers, by components."""
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
