"""Which worker takes which edges of a block, so that none meets another's rows.

Edges in blocks and rows to be treated apart in; a Plan out, made once (CYCLADES, Pan
2016). Two edges of a block conflict where they share a row: connected ones go together.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges


class Plan(NamedTuple):
    """Worker w of block b takes edges[starts[c] : starts[c + 1]], c = b·workers + w.

    They rise. After all of them it takes rows later_rows[later_starts[c] : …], which
    are apart; the j-th of these has entries [entry_starts[j] : entry_starts[j + 1]],
    by rising edges: the edge's place in the block, and the place of the row among all
    of the block's, from edges.starts[first edge] on.
    """

    batch: int
    starts: np.ndarray  # int64
    edges: np.ndarray  # int64
    later_starts: np.ndarray  # int64
    later_rows: np.ndarray  # uint32
    entry_starts: np.ndarray  # int64
    entry_edges: np.ndarray  # int32
    entry_slots: np.ndarray  # int64
    apart: np.ndarray  # uint8, by row


def plan(edges: Edges, batch: int, workers: int, apart: np.ndarray) -> Plan:
    """Cut edges into blocks of a batch and deal each block to workers.

    Largest components go first, to whoever has least; time is nearly linear in rows.

        a block of 5            conflicts    workers
        edge 0   rows 1 4        0 ── 2      worker 0: edges 0 2 3, then row 5,
        edge 1   rows 0 5             │      by the sum of edges 1 and 4
        edge 2   rows 1 2 6      1    3      worker 1: edges 1 4
        edge 3   rows 6 7
        edge 4   rows 3 5           4        row 5 is apart: it connects nothing
    """
    count = _blocks(edges, batch, apart)
    if workers < 1:
        raise BadInput(f"expected 1 worker or more, got {workers=}; pass another count")
    apart = np.ascontiguousarray(apart, np.uint8)
    entries = int(np.count_nonzero(apart[edges.rows]))
    found = Plan(
        batch,
        np.zeros(count * workers + 1, np.int64),
        np.empty(len(edges.starts) - 1, np.int64),
        np.zeros(count * workers + 1, np.int64),
        np.empty(entries, np.uint32),
        np.zeros(entries + 1, np.int64),
        np.empty(entries, np.int32),
        np.empty(entries, np.int64),
        apart,
    )
    _fill(edges, workers, _roots(edges, batch, apart), found)
    used = found.later_starts[-1]
    return found._replace(
        later_rows=found.later_rows[:used].copy(),
        entry_starts=found.entry_starts[: used + 1].copy(),
    )


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
def _fill(edges, workers, roots, plan):
    """Deal block after block."""
    numbers = np.full(len(plan.apart), -1)
    for block in range((len(plan.starts) - 1) // workers):
        first = block * plan.batch
        last = min(first + plan.batch, len(roots))
        sizes = np.zeros(last - first, np.int64)
        for e in range(first, last):
            sizes[roots[e]] += edges.starts[e + 1] - edges.starts[e]
        dealt = deal(sizes, workers)
        takers = np.empty(last - first, np.int64)
        for e in range(first, last):
            takers[e - first] = dealt[roots[e]]
        cell = block * workers
        places = spread(takers, plan.starts[cell : cell + workers + 1])
        for e in range(first, last):
            plan.edges[places[e - first]] = e
        starts = plan.later_starts[cell : cell + workers + 1]
        _defer(edges, first, last, numbers, plan, starts)


@njit(nogil=True, cache=True)
def _defer(edges, first, last, numbers, plan, starts):
    """Deal a block's rows apart.

    A row's number counts the rows apart since the first block: it is of this block if
    `used` or more, and nothing is reset.
    """
    begin, end, used = edges.starts[first], edges.starts[last], starts[0]
    sizes, new = np.zeros(end - begin + 1, np.int64), 0
    for k in range(begin, end):
        row = edges.rows[k]
        if plan.apart[row]:
            if numbers[row] < used:
                numbers[row] = used + new
                new += 1
            sizes[numbers[row] - used] += 1
    if new == 0:
        for worker in range(1, len(starts)):
            starts[worker] = used
        return
    places = spread(deal(sizes[:new], len(starts) - 1), starts)
    for n in range(new):
        plan.entry_starts[places[n] + 1] = sizes[n]
    for n in range(used, used + new):
        plan.entry_starts[n + 1] += plan.entry_starts[n]
    ends = np.empty(new, np.int64)
    for n in range(new):
        ends[n] = plan.entry_starts[places[n]]
    for e in range(first, last):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            row = edges.rows[k]
            if plan.apart[row]:
                number = numbers[row] - used
                plan.later_rows[places[number]] = row
                plan.entry_edges[ends[number]] = e - first
                plan.entry_slots[ends[number]] = k - begin
                ends[number] += 1
