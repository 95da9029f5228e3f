"""Voting: sums of few columns, which shards of the rows elect; one model for every p.

    shard 0 │ sums of its rows ──► gains ──► `top` columns ─┐
    shard 1 │ sums of its rows ──► gains ──► `top` columns ─┴─► `top` elected columns
    ……                                                          sums over all ranks

The table has V shards of rows, by row number. A rank has whole shards, and does not
send their sums. The vote of a column is its gain in the shard, with 1/V of the smallest
numbers of a leaf, times rows of the shard / (rows of the node / V). Columns are sorted
by their largest vote, then by number: LightGBM's voting, with shards in place of
machines (Meng 2016). So the model depends on V and on the order of the rows, not on p.

Words over p ranks for a node that is searched, with s slots in the elected columns, of
w words each, if a rank has at most v shards:

    p(p-1) · 2 v top + (p-1) s w        w = 2 + (1 if rows are counted)
"""

from typing import NamedTuple

import numpy as np

from dml.boosting.histograms import Slots, histogram
from dml.boosting.messages import Grid, add_parts, collect, largest, part
from dml.boosting.rows import Binned
from dml.boosting.search import (
    Limits,
    Node,
    compiled,
    score,
    search_category,
    search_number,
)
from dml.boosting.settings import Settings
from dml.boosting.sparse import SparseRows
from dml.types import BadInput


class Shards(NamedTuple):
    """The shards of a rank.

    Attributes:
      edges: First row of each shard on this rank, and the number of rows.
      most: Largest number of shards of a rank.
      number: Number V of shards of the table.
      top: Number of columns that a shard proposes, and that are elected.
    """

    edges: np.ndarray
    most: int
    number: int
    top: int


def shards_of(
    grid: Grid, settings: Settings, rows: int, first: int, count: int
) -> Shards:
    """Return the shards of a rank that has `count` rows from `first` on; collective."""
    edges = rows * np.arange(settings.shards + 1) // settings.shards
    inside = edges[(first <= edges) & (edges <= first + count)] - first
    whole = {0, count} <= {*inside.tolist()}
    bad, most = largest(grid.everyone, np.array([not whole, len(inside)], np.int64))
    if bad:
        raise BadInput(
            f"expected whole shards of {rows} rows in {settings.shards} shards on each "
            'rank, got parts of them; divide the table by share with split="vote"'
        )
    return Shards(inside, int(most) - 1, settings.shards, settings.top)


def shard_sums(
    shards: Shards,
    binned: Binned | SparseRows,
    slots: Slots,
    rows: np.ndarray,
    packed: np.ndarray,
    counted: bool,
) -> np.ndarray:
    """Return the sums of rows, which ascend, by shard of this rank and slot."""
    cuts = np.searchsorted(rows, shards.edges)
    return np.stack(
        [
            histogram(binned, slots, rows[begin:end], packed, False, counted)
            for begin, end in zip(cuts[:-1], cuts[1:], strict=True)
        ]
        or [histogram(binned, slots, rows[:0], packed, False, counted)]
    )


@compiled
def gains_of(sums_SxW, columns_Fx5, read, node, limits, gains_F):
    """Write the gain of the best split of each column of a shard, or 0."""
    g, h = node.g * limits.g_unit, node.h * limits.h_unit
    parent = score(g, h, node.low, node.high, limits.l1, limits.l2)
    set_4 = np.zeros(4, np.int64)
    for f in range(columns_Fx5.shape[0]):
        begin, count, missing, kind, number = columns_Fx5[f]
        column, gain = (begin, count, missing, kind, number), -np.inf
        if read[f] and kind == 2:
            gain = search_category(sums_SxW, column, node, limits, set_4)[0]
        elif read[f]:
            gain = search_number(sums_SxW, column, node, limits)[0]
        gains_F[f] = max(gain - parent, 0.0) if gain > -np.inf else 0.0


def votes(
    shards: Shards,
    sums_VxSxW: np.ndarray,
    weights: np.ndarray,
    columns: tuple[np.ndarray, np.ndarray],
    node: Node,
    limits: Limits,
) -> np.ndarray:
    """Return the columns that the shards of a rank propose, and their votes.

    Args:
      shards: Shards.
      sums_VxSxW: Sums of each shard.
      weights: Rows of each shard, divided by the mean of all shards.
      columns: `columns_Fx5` of `search_columns`, and whether each is read.
      node: The node, of all rows.
      limits: Limits of the whole table.

    Returns:
      Shape (most, top, 2); places without a proposal have the column -1.
    """
    local = limits._replace(
        min_rows=limits.min_rows // shards.number,
        min_hessian=limits.min_hessian / shards.number,
    )
    made = np.full((shards.most, shards.top, 2), -1, np.int64)
    gains = np.zeros(len(columns[0]))
    end = int(columns[0][0, 1:3].sum())  # slots of the first column, of all rows
    for sums, weight, record in zip(sums_VxSxW, weights, made, strict=False):
        g, h, rows = sums[:end, [0, 1, -1]].sum(axis=0).tolist()
        own = node._replace(g=g, h=h, rows=rows)
        gains_of(sums, *columns, own, local, gains)
        weighted = gains * weight
        order = np.argsort(-weighted, kind="stable")[: shards.top]
        order = order[weighted[order] > 0]
        record[: len(order), 0] = order
        record[: len(order), 1] = weighted[order].view(np.int64)
    return made


def elected(proposals_Mx2: np.ndarray, columns: int, top: int) -> np.ndarray:
    """Return the elected columns, ascending."""
    proposals_Mx2 = proposals_Mx2[proposals_Mx2[:, 0] >= 0]
    best = np.zeros(columns)
    np.maximum.at(best, proposals_Mx2[:, 0], proposals_Mx2[:, 1].view(np.float64))
    order = np.argsort(-best, kind="stable")[:top]
    return np.sort(order[best[order] > 0])


def elected_sums(
    grid: Grid,
    proposals: np.ndarray,
    top: int,
    sums_VxSxW: np.ndarray,
    columns_Fx5: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums over all ranks and columns of this rank's part of the elected ones.

    Collective.
    """
    every = collect(grid.down, proposals).reshape(-1, 2)
    chosen = elected(every, len(columns_Fx5), top)
    columns_Cx5 = columns_Fx5[chosen]
    sizes = columns_Cx5[:, 1] + columns_Cx5[:, 2]
    slots = [
        np.arange(b, b + size) for b, size in zip(columns_Cx5[:, 0], sizes, strict=True)
    ]
    places = np.concatenate([np.zeros(0, np.int64), *slots])
    sums = sums_VxSxW.sum(axis=0)[places]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    parts = [part(len(chosen), grid.rows, r) for r in range(grid.rows)]
    edges = [int(starts[each.start]) for each in parts] + [int(starts[-1])]
    own = parts[grid.row]
    columns_Cx5[:, 0] = starts[:-1]
    columns_Cx5[own, 0] -= starts[own.start]
    return add_parts(grid.down, sums, edges), columns_Cx5[own]
