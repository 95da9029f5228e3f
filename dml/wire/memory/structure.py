"""The sparsity of a problem: Ω, Δ and ρ of HOGWILD! (Niu 2011), conflicts, delays.

The two delays are those at which theories of asynchronous updates expect a loss.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput, Edges

HEAVY = 64  # a row in more than 1 of so many edges is a bitset over the edges
WORK = 1 << 26  # edges of rows that a measurement may visit
WORDS = 8  # of a bitset, read in sequence, take as long as one edge


class Structure(NamedTuple):
    """The numbers of a hypergraph."""

    edges: int
    rows: int  # that some edge touches
    omega: int  # Ω: rows of the largest edge
    delta: float  # Δ: share of the edges that touch the most used row
    rho: float  # ρ: largest share of the edges that meet one edge, itself included
    conflicts: float  # other edges that share a row with an edge, on average
    sampled: bool  # the average is of a sample, and ρ is a lower bound
    worst: float  # delay at which Niu's bound of the steps has doubled
    usual: float  # delay at which an edge conflicts with 1 update in transit on average


def structure(edges: Edges, width: int, seed: int = 0, work: int = WORK) -> Structure:
    """Measure edges over a table of this width.

    The numbers are exact unless that takes more work than `work`. Then the average is
    over drawn edges, and ρ is sought among the edges whose rows are used most.
    """
    count = len(edges.starts) - 1
    if not len(edges.rows):
        raise BadInput(
            f"expected edges that touch rows, got {count} that touch none; pass "
            "examples that have features"
        )
    if edges.rows.max() >= width:
        raise BadInput(
            f"expected rows below {width=}, got {edges.rows.max()}; pass the table's"
        )
    degrees = np.bincount(edges.rows, minlength=width)
    members = transpose(edges, width)
    heavy = np.flatnonzero(degrees > count / HEAVY)
    numbers = np.full(width, -1)
    numbers[heavy] = np.arange(len(heavy))
    bits_HxW = bitsets(members, heavy, -(-count // 64))
    costs = degrees.copy()
    costs[heavy] = 1 + bits_HxW.shape[1] // WORDS
    drawn, most = _visits(edges, (costs, degrees), seed, work)
    met = overlaps(edges, members, numbers, bits_HxW, drawn)
    best = overlaps(edges, members, numbers, bits_HxW, most).max(initial=met.max())
    sizes = np.diff(edges.starts)
    omega, delta = int(sizes.max()), float(degrees.max()) / count
    rho = float(best) / count
    conflicts = float((met - (sizes[drawn] > 0)).mean())
    return Structure(
        count,
        int(np.count_nonzero(degrees)),
        omega,
        delta,
        rho,
        conflicts,
        len(drawn) < count,
        safe_delay(omega, delta, rho),
        count / conflicts if conflicts else math.inf,
    )


def safe_delay(omega: int, delta: float, rho: float) -> float:
    """Return τ where 6ρτ + 6τ²Ω√Δ = 1: HOGWILD!'s steps are at most doubled.

    They are 1 + 6ρτ + 6τ²Ω√Δ times those of no delay (Niu 2011, Proposition 4.1).
    """
    linear, square = 6 * rho, 6 * omega * math.sqrt(delta)
    return 2 / (linear + math.sqrt(linear**2 + 4 * square))


def lines(found: Structure) -> list[str]:
    """Return lines of text, one for each number."""
    least, about = ("at least ", "about ") if found.sampled else ("", "")
    return [
        f"{found.edges} edges over {found.rows} rows",
        f"Ω = {found.omega} rows in the largest edge",
        f"Δ = {found.delta:.3g} of the edges touch the most used row",
        f"ρ = {least}{found.rho:.3g} of the edges meet one of them",
        f"{about}{found.conflicts:.4g} others conflict with an edge on average",
        f"safe delay, worst case (6ρτ + 6τ²Ω√Δ = 1): {found.worst:.3g} updates",
        f"safe delay, on average (edges / conflicts): {found.usual:.3g} updates",
    ]


def _visits(
    edges: Edges, values: tuple[np.ndarray, np.ndarray], seed: int, work: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges to average over, and further edges among which ρ is sought."""
    count = len(edges.starts) - 1
    sums = [np.append(0, np.cumsum(value[edges.rows])) for value in values]
    costs, bounds = (s[edges.starts[1:]] - s[edges.starts[:-1]] for s in sums)
    if costs.sum() <= work:
        return np.arange(count), np.arange(0)
    drawn = np.random.default_rng(seed).permutation(count)
    drawn = drawn[: max(1, int(count * (work / costs.sum())))]
    most = np.argsort(-bounds, kind="stable")
    allowed = int(np.searchsorted(np.cumsum(costs[most]), work, "right"))
    return np.sort(drawn), most[: max(1, allowed)]


@njit(nogil=True, cache=True)
def transpose(edges, width):
    """Return the edges of each row, in rising order, as Edges."""
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
    """Return a bit for each edge, set where it touches the row; for each heavy row."""
    bits = np.zeros((len(heavy), words), np.uint64)
    for n in range(len(heavy)):
        for k in range(members.starts[heavy[n]], members.starts[heavy[n] + 1]):
            e = np.int64(members.rows[k])
            bits[n, e >> 6] |= np.uint64(1) << np.uint64(e & 63)
    return bits


@njit(nogil=True, cache=True)
def ones(word):
    """Return the number of set bits: by pairs, fours, bytes, then all."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(nogil=True, cache=True)
def overlaps(edges, members, numbers, bits, visits):
    """Return the number of edges that meet each visited edge, itself included."""
    stamps = np.full(len(edges.starts) - 1, -1)
    union, found = np.zeros(bits.shape[1], np.uint64), np.zeros(len(visits), np.int64)
    for v in range(len(visits)):
        first, last = edges.starts[visits[v]], edges.starts[visits[v] + 1]
        heavy = met = 0
        for k in range(first, last):
            number = numbers[edges.rows[k]]
            if number >= 0:
                heavy += 1
                for word in range(len(union)):
                    union[word] |= bits[number, word]
        if heavy:
            for word in range(len(union)):
                met += ones(union[word])
        for k in range(first, last):
            row = edges.rows[k]
            if numbers[row] < 0:
                for j in range(members.starts[row], members.starts[row + 1]):
                    e = np.int64(members.rows[j])
                    if stamps[e] != v:
                        stamps[e] = v
                        met += not (union[e >> 6] >> np.uint64(e & 63)) & np.uint64(1)
        if heavy:
            for word in range(len(union)):
                union[word] = 0
        found[v] = met
    return found
