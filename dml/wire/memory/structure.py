"""The sparsity of a problem: Ω, Δ and ρ of HOGWILD! (Niu 2011), conflicts, delays.

An edge is an example with the rows that it uses. Two edges conflict if they share rows.
Convergence is predicted to slow down beyond a delay: `worst_case_delay` by the bound of
Niu 2011, `average_delay` where an edge conflicts with 1 concurrent edge on average.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges

HEAVY = 64  # a row in more than 1 / HEAVY of the edges is stored as a bitset of edges
WORK = 1 << 26  # largest number of (row, edge) pairs that a measurement visits
WORDS = 8  # 64-bit words of a bitset that take the time of one (row, edge) pair


class Structure(NamedTuple):
    """Properties of the hypergraph of edges and rows."""

    edges: int  # number of edges
    rows: int  # number of rows that are in at least one edge
    omega: int  # Ω: number of rows of the largest edge
    delta: float  # Δ: share of the edges that contain the most frequent row
    rho: float  # ρ: greatest share of the edges that share a row with one edge
    conflicts: float  # mean number of other edges that share a row with an edge
    sampled: bool  # whether `conflicts` is of a sample and `rho` a lower bound
    worst_case_delay: float  # updates; Niu's bound on the number of steps doubles
    average_delay: float  # updates; an edge has 1 concurrent conflict on average


def structure(edges: Edges, width: int, seed: int = 0, work: int = WORK) -> Structure:
    """Measure the structure of edges.

    The result is exact unless it needs more than `work` pairs. Then conflicts are
    averaged over a random sample of edges, and ρ is the maximum over the sample and the
    edges with the most frequent rows.

    Args:
      edges: The edges.
      width: Number of rows of the table.
      seed: Random seed of the sample.
      work: Largest number of (row, edge) pairs to visit.
    """
    count = len(edges.starts) - 1
    if not len(edges.rows):
        raise BadInput(
            f"expected edges with rows, got {count} without rows; pass examples that "
            "have features"
        )
    if edges.rows.max() >= width:
        raise BadInput(
            f"expected rows below {width=}, got {edges.rows.max()}; pass the number "
            "of rows of the table"
        )
    degrees = np.bincount(edges.rows, minlength=width)
    members = transpose(edges, width)
    heavy = np.flatnonzero(degrees > count / HEAVY)
    bitset_of = np.full(width, -1)  # by row; -1: not heavy
    bitset_of[heavy] = np.arange(len(heavy))
    bits_HxW = bitsets(members, heavy, -(-count // 64))
    costs = degrees.copy()
    costs[heavy] = 1 + bits_HxW.shape[1] // WORDS
    sample, frequent = _visits(edges, (costs, degrees), seed, work)
    overlaps_of_sample = overlaps(edges, members, bitset_of, bits_HxW, sample)
    overlaps_of_frequent = overlaps(edges, members, bitset_of, bits_HxW, frequent)
    most = overlaps_of_frequent.max(initial=overlaps_of_sample.max())
    sizes = np.diff(edges.starts)
    omega, delta = int(sizes.max()), float(degrees.max()) / count
    rho = float(most) / count
    # an edge with rows overlaps itself
    conflicts = float((overlaps_of_sample - (sizes[sample] > 0)).mean())
    return Structure(
        count,
        int(np.count_nonzero(degrees)),
        omega,
        delta,
        rho,
        conflicts,
        len(sample) < count,
        safe_delay(omega, delta, rho),
        count / conflicts if conflicts else math.inf,
    )


def safe_delay(omega: int, delta: float, rho: float) -> float:
    """Return the delay τ with 6ρτ + 6τ²Ω√Δ = 1, which at most doubles the steps.

    HOGWILD! takes 1 + 6ρτ + 6τ²Ω√Δ times the steps without delay (Niu 2011,
    Proposition 4.1).
    """
    linear, square = 6 * rho, 6 * omega * math.sqrt(delta)
    return 2 / (linear + math.sqrt(linear**2 + 4 * square))


def lines(structure: Structure) -> list[str]:
    """Return a line of text for each property."""
    least, about = ("at least ", "about ") if structure.sampled else ("", "")
    worst, average = structure.worst_case_delay, structure.average_delay
    return [
        f"{structure.edges} edges over {structure.rows} rows",
        f"Ω = {structure.omega} rows in the largest edge",
        f"Δ = {structure.delta:.3g} of the edges contain the most frequent row",
        f"ρ = {least}{structure.rho:.3g} of the edges share a row with one edge",
        f"{about}{structure.conflicts:.4g} edges conflict with an edge on average",
        f"safe delay, worst case (6ρτ + 6τ²Ω√Δ = 1): {worst:.3g} updates",
        f"safe delay, on average (edges / conflicts): {average:.3g} updates",
    ]


def _visits(
    edges: Edges, values: tuple[np.ndarray, np.ndarray], seed: int, work: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges to average over, and further edges for the maximum ρ.

    Args:
      edges: The edges.
      values: By row: the cost of a visit in pairs, and the number of edges of the row.
      seed: Random seed of the sample.
      work: Largest number of (row, edge) pairs to visit, for each of the two results.
    """
    count = len(edges.starts) - 1
    sums = [np.append(0, np.cumsum(value[edges.rows])) for value in values]
    costs, bounds = (s[edges.starts[1:]] - s[edges.starts[:-1]] for s in sums)
    if costs.sum() <= work:
        return np.arange(count), np.arange(0)
    sample = np.random.default_rng(seed).permutation(count)
    sample = sample[: max(1, int(count * (work / costs.sum())))]
    frequent = np.argsort(-bounds, kind="stable")
    allowed = int(np.searchsorted(np.cumsum(costs[frequent]), work, "right"))
    return np.sort(sample), frequent[: max(1, allowed)]


@njit(nogil=True, cache=True)
def transpose(edges, width):
    """Return the edges of each row, in ascending order, as Edges."""
    starts = np.zeros(width + 2, np.int64)
    for row in edges.rows:
        starts[row + 2] += 1
    for row in range(width):
        starts[row + 2] += starts[row + 1]
    members = np.empty(len(edges.rows), np.uint32)
    for e in range(len(edges.starts) - 1):
        for k in range(edges.starts[e], edges.starts[e + 1]):
            row = edges.rows[k]
            members[starts[row + 1]] = e
            starts[row + 1] += 1
    return Edges(starts[:-1], members)


@njit(nogil=True, cache=True)
def bitsets(members, heavy, words):
    """Return a bitset of the edges that contain each heavy row."""
    bits = np.zeros((len(heavy), words), np.uint64)
    for n in range(len(heavy)):
        for k in range(members.starts[heavy[n]], members.starts[heavy[n] + 1]):
            e = np.int64(members.rows[k])
            bits[n, e >> 6] |= np.uint64(1) << np.uint64(e & 63)
    return bits


@njit(nogil=True, cache=True)
def count_bits(word):
    """Return the number of set bits of a word, by sums over 2, 4, 8 and 64 bits."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(nogil=True, cache=True)
def overlaps(edges, members, bitset_of, bits, visits):
    """Return the number of edges that share a row with each visited edge.

    An edge with rows is counted as well.

    Args:
      edges: The edges.
      members: Edges of each row, by `transpose`.
      bitset_of: Index of the bitset of each row; -1 for rows without a bitset.
      bits: Bitsets of the edges of heavy rows.
      visits: Indices of the visited edges.
    """
    last_visit = np.full(len(edges.starts) - 1, -1)
    union, counts = np.zeros(bits.shape[1], np.uint64), np.zeros(len(visits), np.int64)
    for v in range(len(visits)):
        first, last = edges.starts[visits[v]], edges.starts[visits[v] + 1]
        heavy = count = 0  # rows with bitsets; edges that share a row
        for k in range(first, last):
            bitset = bitset_of[edges.rows[k]]
            if bitset >= 0:
                heavy += 1
                for word in range(len(union)):
                    union[word] |= bits[bitset, word]
        if heavy:
            for word in range(len(union)):
                count += count_bits(union[word])
        for k in range(first, last):
            row = edges.rows[k]
            if bitset_of[row] < 0:
                for j in range(members.starts[row], members.starts[row + 1]):
                    e = np.int64(members.rows[j])
                    if last_visit[e] != v:
                        last_visit[e] = v
                        count += not (union[e >> 6] >> np.uint64(e & 63)) & np.uint64(1)
        if heavy:
            for word in range(len(union)):
                union[word] = 0
        counts[v] = count
    return counts
