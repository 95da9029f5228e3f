"""BATCH: edges of chosen Ω, Δ and ρ from a seed, and documents that touch those rows.

Numbers in; Edges, or a Batch of a CSR matrix and labels that a plane parts, out.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Batch, Edges

MARGIN = 0.1  # between the plane and what lies near it, before rows are scaled to 1


class Group(NamedTuple):
    """Edges that meet each other and none besides; all groups are of one kind."""

    size: int  # edges
    hot: int  # rows that its first edge shares with all others, each with one of them
    calm: int  # its other rows


def generated(
    edges: int, rows: int, omega: int, delta: float, rho: float, seed: int
) -> Edges:
    """Make edges of Ω rows each, some row in Δ of them, some edge meeting ρ of them.

    All three are exact, Δ and ρ to the nearest whole number of edges. Edges come in
    groups of ρ, which share no row. One edge of a group has its hot rows; each of the
    others has one of these, so that Δ of the edges touch a hot row. The rest is drawn:
    deals of the group's calm rows, each row once a deal, in Δ of the edges at most.
    """
    degree, group = _group(edges, rows, omega, delta, rho)
    rng = np.random.default_rng(seed)
    names = rng.permutation(rows).astype(np.uint32)
    order = rng.permutation(edges)
    width = group.hot + group.calm
    found_ExO = np.empty((edges, omega), np.uint32)
    for n, first in enumerate(range(0, edges, group.size)):
        mine = order[first : first + group.size]
        touched_RxO = _touched(rng, group, omega, max(degree - 1, 1))
        found_ExO[mine] = names[n * width + touched_RxO[: len(mine)]]
    found_ExO.sort(1)
    return Edges(np.arange(edges + 1, dtype=np.int64) * omega, found_ExO.ravel())


def documents(edges: Edges, width: int, seed: int) -> Batch:
    """Give edges values, in rows of length 1, and labels -1, +1: a plane parts them."""
    from scipy.sparse import csr_matrix

    if (np.diff(edges.starts) == 0).any():
        raise BadInput(
            "expected a row or more in each edge, got an edge without rows; pass others"
        )
    rng = np.random.default_rng(seed)
    normal, values = rng.standard_normal(width), rng.standard_normal(len(edges.rows))
    counts = np.diff(edges.starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    along = normal[edges.rows]

    def sums(parts: np.ndarray) -> Any:
        return np.bincount(owner, parts, len(counts))

    labels = np.where(sums(values * along) < 0, -1.0, 1.0)
    # away from the plane, along the part of its normal that the edge touches
    values += (MARGIN * labels / np.sqrt(sums(along**2)))[owner] * along
    values /= np.sqrt(sums(values**2))[owner]
    parts = values.astype(np.float32), edges.rows.astype(np.int32), edges.starts
    inputs = csr_matrix(parts, shape=(len(counts), width))
    return Batch(inputs, labels.astype(np.float32))


def _group(
    edges: int, rows: int, omega: int, delta: float, rho: float
) -> tuple[int, Group]:
    """Return the most used row's edges, and a group; refuse what cannot be."""
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
            f"{rho=}; an edge meets those of its {omega} rows, {degree} each"
        )
    hot = max(1, -(-(size - 1) // max(degree - 1, 1)))
    groups = -(-edges // size)
    least = hot + (omega - 1) * -(-size // degree)
    if rows < groups * least:
        raise BadInput(
            f"expected {groups * least} rows or more, {least} for each {size} edges, "
            f"got {rows=}; pass more, or a greater Δ"
        )
    return degree, Group(size, hot, rows // groups - hot)


def _touched(
    rng: np.random.Generator, group: Group, omega: int, share: int
) -> np.ndarray:
    """Return the rows of a group's edges, by number in the group, hot ones first."""
    found_RxO = np.empty((group.size, omega), np.int64)
    if omega > 1:
        deal = group.calm // (omega - 1)
        calm = np.tile(np.arange(group.calm), (-(-group.size // deal), 1))
        dealt = rng.permuted(calm, axis=1)[:, : deal * (omega - 1)]
        found_RxO[:, 1:] = group.hot + dealt.reshape(-1, omega - 1)[: group.size]
    found_RxO[1:, 0] = np.arange(group.size - 1) // share
    found_RxO[0, : group.hot] = np.arange(group.hot)
    return found_RxO
