"""Generate hypergraphs with chosen Ω, Δ and ρ, and documents on their edges.

Ω is the number of rows per edge, Δ the largest share of edges that touch one row, and ρ
the largest share of edges that share a row with one edge (Hogwild!, Niu 2011).
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Batch, Edges

MARGIN = 0.1  # distance from the hyperplane before rows are normalized


class Group(NamedTuple):
    """Sizes of a group of edges; edges of different groups share no row."""

    size: int  # number of edges
    hot: int  # number of hot rows: each edge but the first has one of them
    cold: int  # number of other rows


def generated(
    edges: int, rows: int, omega: int, delta: float, rho: float, seed: int
) -> Edges:
    """Generate edges with exact Ω, Δ and ρ.

    Δ and ρ are rounded to multiples of 1 / edges. Edges form groups of ρ · edges;
    groups share no row. The first edge of a group contains all hot rows of the group,
    and each other edge one of them, so that a share Δ of all edges touches a hot row.
    The other rows of an edge are random cold rows, each in at most a share Δ of the
    edges.

    Args:
      edges: Number of edges.
      rows: Number of rows.
      omega: Rows per edge, Ω.
      delta: Largest share of edges that touch one row, Δ.
      rho: Largest share of edges that share a row with one edge, ρ.
      seed: Random seed.
    """
    degree, group = _group(edges, rows, omega, delta, rho)
    rng = np.random.default_rng(seed)
    names = rng.permutation(rows).astype(np.uint32)
    order = rng.permutation(edges)
    width = group.hot + group.cold
    rows_ExO = np.empty((edges, omega), np.uint32)
    for n, first in enumerate(range(0, edges, group.size)):
        members = order[first : first + group.size]
        touched_RxO = _touched(rng, group, omega, max(degree - 1, 1))
        rows_ExO[members] = names[n * width + touched_RxO[: len(members)]]
    rows_ExO.sort(1)
    return Edges(np.arange(edges + 1, dtype=np.int64) * omega, rows_ExO.ravel())


def documents(edges: Edges, width: int, seed: int) -> Batch:
    """Return unit rows on the edges, with labels -1, +1 separated by a hyperplane."""
    from scipy.sparse import csr_matrix

    if (np.diff(edges.starts) == 0).any():
        raise BadInput(
            "expected 1 row or more in each edge, got an edge without rows; remove "
            "the edge"
        )
    rng = np.random.default_rng(seed)
    normal, values = rng.standard_normal(width), rng.standard_normal(len(edges.rows))
    counts = np.diff(edges.starts)
    edge = np.repeat(np.arange(len(counts)), counts)
    along = normal[edges.rows]

    def sums(parts: np.ndarray) -> Any:
        return np.bincount(edge, parts, len(counts))

    labels = np.where(sums(values * along) < 0, -1.0, 1.0)
    # move away from the plane along the components of its normal on the edge
    values += (MARGIN * labels / np.sqrt(sums(along**2)))[edge] * along
    values /= np.sqrt(sums(values**2))[edge]
    parts = values.astype(np.float32), edges.rows.astype(np.int32), edges.starts
    inputs = csr_matrix(parts, shape=(len(counts), width))
    return Batch(inputs, labels.astype(np.float32))


def _group(
    edges: int, rows: int, omega: int, delta: float, rho: float
) -> tuple[int, Group]:
    """Return the number of edges of a hot row, and the sizes of a group."""
    if edges < 1 or omega < 1:
        raise BadInput(
            f"expected 1 edge or more of 1 row or more, got {edges=} {omega=}; pass "
            "greater numbers"
        )
    degree, size = (
        round(share * edges) if 0 < share <= 1 else 0 for share in (delta, rho)
    )
    if degree < 1:
        raise BadInput(
            f"expected a Δ of {1 / edges:.3g} to 1 of {edges} edges, got {delta=}; "
            "a row is in 1 edge or more"
        )
    most = min(edges, 1 + omega * (degree - 1))
    if not degree <= size <= most:
        raise BadInput(
            f"expected a ρ of Δ={degree / edges:.3g} to {most / edges:.3g}, got "
            f"{rho=}; each of an edge's {omega} rows is in at most {degree} edges"
        )
    hot = max(1, -(-(size - 1) // max(degree - 1, 1)))
    groups = -(-edges // size)
    least = hot + (omega - 1) * -(-size // degree)
    if rows < groups * least:
        raise BadInput(
            f"expected {groups * least} rows or more, {least} for each {size} edges, "
            f"got {rows=}; pass more rows, or a greater Δ"
        )
    return degree, Group(size, hot, rows // groups - hot)


def _touched(
    rng: np.random.Generator, group: Group, omega: int, share: int
) -> np.ndarray:
    """Return the rows of a group's edges, numbered in the group, hot rows first."""
    rows_RxO = np.empty((group.size, omega), np.int64)
    if omega > 1:
        edges = group.cold // (omega - 1)  # edges served by one permutation
        cold = np.tile(np.arange(group.cold), (-(-group.size // edges), 1))
        drawn = rng.permuted(cold, axis=1)[:, : edges * (omega - 1)]
        rows_RxO[:, 1:] = group.hot + drawn.reshape(-1, omega - 1)[: group.size]
    rows_RxO[1:, 0] = np.arange(group.size - 1) // share
    rows_RxO[0, : group.hot] = np.arange(group.hot)
    return rows_RxO
