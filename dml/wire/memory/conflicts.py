"""Plans of CYCLADES (Pan 2016): an assignment of edges to workers without conflicts.

An edge is an example with the rows that it uses. Two edges of a block conflict if they
share a row. All edges of a connected component of conflicts have the same worker. Rows
that too many edges share would connect all edges: their changes are deferred to the end
of the block, and they cause no conflicts.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges

LINE = 16  # rows assigned together to a worker, so that no cache line has two writers


# The name must not change: Numba reads it from the cache of compiled kernels.
class Plan(NamedTuple):
    """The assignment of edges, and of deferred rows, to workers.

    In block b, worker w visits edges[starts[c] : starts[c + 1]] with c = b·workers + w,
    in ascending order. A deferred row has the same worker in all blocks. The deferred
    rows of edge e and worker w are slots[slot_starts[c] : slot_starts[c + 1]] with
    c = e·workers + w, in ascending order; slot s of edge e is the row
    edges.rows[edges.starts[e] + s].
    """

    starts: np.ndarray  # int64, by block and worker
    edges: np.ndarray  # int64, by block and worker
    slot_starts: np.ndarray  # int64, by edge and worker
    slots: np.ndarray  # int32, by edge and worker
    deferred: np.ndarray  # uint8, by row: whether its changes are deferred


def plan(edges: Edges, batch: int, workers: int, deferred: np.ndarray) -> Plan:
    """Divide edges into blocks, and the edges of each block among workers.

    Components are assigned largest first, each to the worker with the fewest rows so
    far. Cache lines of deferred rows are assigned in the same way, by their numbers of
    edges. The time is nearly linear in the number of rows.

        a block of 5            conflicts    workers
        edge 0   rows 1 4        0 ── 2      worker 0: edges 0 2 3
        edge 1   rows 0 5             │      worker 1: edges 1 4
        edge 2   rows 1 2 6      1    3
        edge 3   rows 6 7                    row 5 is deferred, connects nothing:
        edge 4   rows 3 5           4        one worker changes it after the block

    Args:
      edges: The edges, in the order of examples.
      batch: Number of edges in a block.
      workers: Number of workers.
      deferred: Mask of the rows whose changes are deferred to the end of a block.
    """
    count = _blocks(edges, batch, deferred)
    if workers < 1:
        raise BadInput(f"expected 1 worker or more, got {workers=}; pass another count")
    deferred = np.ascontiguousarray(deferred, np.uint8)
    starts = np.zeros(count * workers + 1, np.int64)
    ordered = np.empty(len(edges.starts) - 1, np.int64)
    roots = _roots(edges, batch, deferred)
    _assign_edges(edges, batch, workers, roots, (starts, ordered))
    if not deferred.any():
        empty = np.zeros(1, np.int64)
        return Plan(starts, ordered, empty, np.empty(0, np.int32), deferred)
    degrees = np.where(deferred, np.bincount(edges.rows, minlength=len(deferred)), 0)
    lines = np.add.reduceat(degrees, np.arange(0, len(deferred), LINE))
    owners = np.repeat(assign(lines, workers), LINE)  # rounded up to whole lines
    slot_starts, slots = _slots(edges, workers, deferred, owners)
    return Plan(starts, ordered, slot_starts, slots, deferred)


def component_sizes(edges: Edges, batch: int, deferred: np.ndarray) -> list[np.ndarray]:
    """Return the sizes in edges of the components of each block, largest first."""
    count = _blocks(edges, batch, deferred)
    roots = _roots(edges, batch, np.ascontiguousarray(deferred, np.uint8))
    by_block = []
    for block in range(count):
        sizes = np.bincount(roots[block * batch : (block + 1) * batch])
        by_block.append(np.sort(sizes[sizes > 0])[::-1])
    return by_block


def hubs(edges: Edges, width: int, share: float) -> np.ndarray:
    """Return a mask of the rows in more than a share of the edges.

    Args:
      edges: The edges.
      width: Number of rows of the table.
      share: Share of the edges; 0 selects all rows, even those without edges.
    """
    if not share >= 0:
        raise BadInput(
            f"expected a share of 0 or more, got {share=}; pass one such as --hubs=1"
        )
    degrees = np.bincount(edges.rows, minlength=width)
    return (degrees > share * (len(edges.starts) - 1)) | (share == 0)


def _blocks(edges: Edges, batch: int, deferred: np.ndarray) -> int:
    """Check the arguments; return the number of blocks."""
    if batch < 1:
        raise BadInput(
            f"expected 1 edge or more per block, got {batch=}; pass --batch=1"
        )
    width = int(edges.rows.max()) + 1 if len(edges.rows) else 0
    if len(deferred) < width:
        raise BadInput(
            f"expected a mask of {width} rows or more, got {len(deferred)}; pass a "
            "mask of the table's length"
        )
    return -(-(len(edges.starts) - 1) // batch)


@njit(nogil=True, cache=True)
def find(parents, e):
    """Return the root of an edge; halve the path to it (union-find)."""
    while parents[e] != e:
        parents[e] = parents[parents[e]]
        e = parents[e]
    return e


@njit(nogil=True, cache=True)
def connect(edges, first, last, deferred, owners, parents):
    """Set the parents of edges first … last - 1; a component's root is its lowest edge.

    The owner of a row is the last edge that touched it. Owners below `first` belong to
    earlier blocks and are ignored, so that owners are not reset between blocks.

    Args:
      edges: The edges.
      first: First edge of the block.
      last: Last edge of the block plus 1.
      deferred: Mask of rows that cause no conflicts.
      owners: Owner of each row; updated.
      parents: Receives the root of each edge, as a position in the block.
    """
    for e in range(first, last):
        parents[e - first] = root = e - first
        for k in range(edges.starts[e], edges.starts[e + 1]):
            row = edges.rows[k]
            if deferred[row]:
                continue
            if owners[row] >= first:
                other = find(parents, owners[row] - first)
                parents[max(root, other)] = min(root, other)
                root = min(root, other)
            owners[row] = e
    # ascending: the parent of each edge already points to its root
    for place in range(last - first):
        parents[place] = parents[parents[place]]


@njit(nogil=True, cache=True)
def _roots(edges, batch, deferred):
    """Return the root of each edge, as a position in its block."""
    count = len(edges.starts) - 1
    owners, roots = np.full(len(deferred), -1), np.empty(count, np.int64)
    for first in range(0, count, batch):
        last = min(first + batch, count)
        connect(edges, first, last, deferred, owners, roots[first:last])
    return roots


@njit(nogil=True, cache=True)
def assign(sizes, workers):
    """Assign items, largest first, to the least loaded worker; return their workers."""
    largest = sizes[0]
    for size in sizes:
        largest = max(largest, size)
    ends = np.zeros(largest + 1, np.int64)
    for size in sizes:
        ends[size] += 1
    for size in range(largest, 0, -1):  # a counting sort, descending
        ends[size - 1] += ends[size]
    order, owners = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    for k in range(len(sizes) - 1, -1, -1):
        ends[sizes[k]] -= 1
        order[ends[sizes[k]]] = k
    loads = np.zeros(workers, np.int64)
    for item in order:
        least = 0
        for worker in range(1, workers):
            if loads[worker] < loads[least]:
                least = worker
        owners[item] = least
        loads[least] += sizes[item]
    return owners


@njit(nogil=True, cache=True)
def places_by_owner(owners, starts):
    """Return the place of each item in a stable sort by owner.

    The first place is starts[0]. Set starts[w + 1] to the end of the items of owner w.
    """
    for worker in range(1, len(starts)):
        starts[worker] = 0
    for owner in owners:
        starts[owner + 1] += 1
    for worker in range(len(starts) - 1):
        starts[worker + 1] += starts[worker]
    ends, places = starts.copy(), np.empty(len(owners), np.int64)
    for k in range(len(owners)):
        places[k] = ends[owners[k]]
        ends[owners[k]] += 1
    return places


@njit(nogil=True, cache=True)
def _assign_edges(edges, batch, workers, roots, results):
    """Assign the edges of each block to workers by components; fill the results."""
    starts, ordered = results
    for block in range((len(starts) - 1) // workers):
        first = block * batch
        last = min(first + batch, len(roots))
        sizes = np.zeros(last - first, np.int64)
        for e in range(first, last):
            sizes[roots[e]] += edges.starts[e + 1] - edges.starts[e]
        by_root = assign(sizes, workers)
        owners = np.empty(last - first, np.int64)
        for e in range(first, last):
            owners[e - first] = by_root[roots[e]]
        cell = block * workers
        places = places_by_owner(owners, starts[cell : cell + workers + 1])
        for e in range(first, last):
            ordered[places[e - first]] = e


@njit(nogil=True, cache=True)
def _slots(edges, workers, deferred, owners):
    """Return starts and slots of the deferred rows of each edge, sorted by owner."""
    count = len(edges.starts) - 1
    starts = np.zeros(count * workers + 1, np.int64)
    for e in range(count):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if deferred[edges.rows[k]]:
                starts[e * workers + owners[edges.rows[k]] + 1] += 1
    for cell in range(count * workers):
        starts[cell + 1] += starts[cell]
    ends, slots = starts.copy(), np.empty(starts[-1], np.int32)
    for e in range(count):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            if deferred[edges.rows[k]]:
                cell = e * workers + owners[edges.rows[k]]
                slots[ends[cell]] = k - edges.starts[e]
                ends[cell] += 1
    return starts, slots
