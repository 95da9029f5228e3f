"""Generate hypergraphs with given Ω, Δ and ρ, and documents with these sparsities.

An edge is a set of rows: the rows of the parameters that an update touches. Ω is the
number of rows per edge, Δ the largest share of edges that touch one row, and ρ the
largest share of edges that have a row in common with one edge (Hogwild!, Niu 2011).
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Batch, Edges

MARGIN = 0.1  # distance added between a document and the hyperplane


class Group(NamedTuple):
    """Sizes of a group of edges; edges of different groups share no row."""

    size: int  # number of edges
    hot: int  # number of hot rows; the first edge has all, every other edge has one
    cold: int  # number of other rows


def generate(
    edges: int, rows: int, omega: int, delta: float, rho: float, seed: int
) -> Edges:
    """Generate edges with exact Ω, Δ and ρ.

    Δ and ρ are rounded to multiples of 1 / edges. A group has ρ · edges edges; groups
    have no row in common. The first edge of a group contains all hot rows of the group,
    and every other edge contains one of them, so that a share Δ of all edges touches
    the same hot row. The other rows of an edge are random cold rows, each in at most a
    share Δ of all edges.

    Args:
      edges: Number of edges.
      rows: Number of rows.
      omega: Rows per edge, Ω.
      delta: Largest share of edges that touch one row, Δ.
      rho: Largest share of edges that have a row in common with one edge, ρ.
      seed: Random seed.
    """
    degree, group = _group(edges, rows, omega, delta, rho)
    rng = np.random.default_rng(seed)
    row_order = rng.permutation(rows).astype(np.uint32)
    edge_order = rng.permutation(edges)
    rows_per_group = group.hot + group.cold
    rows_ExO = np.empty((edges, omega), np.uint32)
    for n, first in enumerate(range(0, edges, group.size)):
        members = edge_order[first : first + group.size]
        group_rows_GxO = _group_rows(rng, group, omega, max(degree - 1, 1))
        group_rows_GxO = group_rows_GxO[: len(members)]  # the last group may be smaller
        rows_ExO[members] = row_order[n * rows_per_group + group_rows_GxO]
    rows_ExO.sort(1)
    return Edges(np.arange(edges + 1, dtype=np.int64) * omega, rows_ExO.ravel())


def documents(edges: Edges, width: int, seed: int) -> Batch:
    """Return a random document of norm 1 per edge, nonzero in the rows of the edge.

    A hyperplane separates the labels -1 and +1.

    Args:
      edges: The hypergraph.
      width: Number of rows of the hypergraph, and of columns of the documents.
      seed: Random seed.
    """
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
    components = normal[edges.rows]  # of the normal, for each nonzero of a document

    def sums(terms: np.ndarray) -> Any:
        """Return the sum over the nonzeros of each document."""
        return np.bincount(edge, terms, len(counts))

    labels = np.where(sums(values * components) < 0, -1.0, 1.0)
    # move each document away from the hyperplane, within its own rows
    distances = MARGIN * labels / np.sqrt(sums(components**2))
    values += distances[edge] * components
    values /= np.sqrt(sums(values**2))[edge]
    csr = values.astype(np.float32), edges.rows.astype(np.int32), edges.starts
    inputs = csr_matrix(csr, shape=(len(counts), width))
    return Batch(inputs, labels.astype(np.float32))


def _group(
    edges: int, rows: int, omega: int, delta: float, rho: float
) -> tuple[int, Group]:
    """Return the number of edges of a hot row, Δ · edges, and the sizes of a group."""
    if edges < 1 or omega < 1:
        raise BadInput(
            f"expected 1 edge or more and 1 row or more per edge, got {edges=} and "
            f"{omega=}; pass larger numbers"
        )
    degree, size = (
        round(share * edges) if 0 < share <= 1 else 0 for share in (delta, rho)
    )
    if degree < 1:
        raise BadInput(
            f"expected a Δ of {1 / edges:.3g} to 1 for {edges} edges, got {delta=}; "
            "a row is in 1 edge or more"
        )
    max_size = min(edges, 1 + omega * (degree - 1))
    if not degree <= size <= max_size:
        raise BadInput(
            f"expected a ρ of Δ={degree / edges:.3g} to {max_size / edges:.3g}, got "
            f"{rho=}; each of an edge's {omega} rows is in at most {degree} edges"
        )
    hot = max(1, -(-(size - 1) // max(degree - 1, 1)))
    groups = -(-edges // size)
    min_rows = hot + (omega - 1) * -(-size // degree)  # per group
    if rows < groups * min_rows:
        raise BadInput(
            f"expected {groups * min_rows} rows or more, {min_rows} for each {size} "
            f"edges, got {rows=}; pass more rows, or a larger Δ"
        )
    return degree, Group(size, hot, rows // groups - hot)


def _group_rows(
    rng: np.random.Generator, group: Group, omega: int, edges_per_hot_row: int
) -> np.ndarray:
    """Return the rows of the edges of a group, GxΩ.

    Rows are numbered within the group, hot rows first. `edges_per_hot_row` does not
    count the first edge, which has all hot rows.
    """
    rows_GxO = np.empty((group.size, omega), np.int64)
    if omega > 1:
        edges = group.cold // (omega - 1)  # edges with distinct rows, per permutation
        cold = np.tile(np.arange(group.cold), (-(-group.size // edges), 1))
        cold_rows = rng.permuted(cold, axis=1)[:, : edges * (omega - 1)]
        rows_GxO[:, 1:] = group.hot + cold_rows.reshape(-1, omega - 1)[: group.size]
    rows_GxO[1:, 0] = np.arange(group.size - 1) // edges_per_hot_row
    rows_GxO[0, : group.hot] = np.arange(group.hot)
    return rows_GxO
