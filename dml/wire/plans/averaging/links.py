"""Graphs of gossip: rings, tori, exponential graphs, hypercubes and trees.

    exponential, 8 ranks     0 → 1, 2, 4                     all shifts in every round
    one_peer_exponential     0 → 1   0 → 2   0 → 4           one shift in each round

Each function has the arguments of its text, and those of `graphs.topology`: the full
text, the number of ranks, and a seed, which only random topologies use.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Annotated

import numpy as np

from dml.types import BadInput
from dml.types.ranges import Range
from dml.wire.plans.averaging.mixing import Link, Topology
from dml.wire.plans.trees import tree as tree_of

MAX_SIZE = 1 << 24  # largest number of ranks of a topology
Side = Annotated[int, Range(1, MAX_SIZE - 1)]


def constant(weight: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda ranks: np.full(np.shape(ranks), weight)


def shift(size: int, distance: int, weight: float) -> Link:
    """Return the link in which rank r sends to rank r + distance, modulo size."""
    return Link(
        lambda ranks: (ranks - distance) % size,
        lambda ranks: (ranks + distance) % size,
        constant(weight),
    )


def modes(size: int, distance: int) -> np.ndarray:
    """Return the eigenvalues of a shift, by Fourier mode."""
    return roots(size)[np.arange(size) * distance % size]


@lru_cache(maxsize=2)
def roots(size: int) -> np.ndarray:
    """Return the powers of the root of 1 with the smallest negative angle."""
    return np.exp(-2j * np.pi * np.arange(size) / size)


def cosines(size: int) -> np.ndarray:
    """Return the eigenvalues of the shifts by 1 and -1 together."""
    return 2 * np.cos(2 * np.pi * np.arange(size) / size)


def static(
    name: str,
    size: int,
    links: Sequence[Link],
    spectrum: Callable[[], np.ndarray] | None = None,
) -> Topology:
    """Return a topology with equal rounds."""

    def eigenvalues(t: int) -> np.ndarray:
        assert spectrum is not None
        return spectrum()

    stated = None if spectrum is None else eigenvalues
    return Topology(name, size, 1, lambda t: links, spectrum=stated)


def ring(*, name: str, size: int, seed: int) -> Topology:
    """Both neighbours with weight 1/3: a gap of 2/3 (1 - cos(2π/p))."""
    links = [shift(size, distance, 1 / 3) for distance in (1, -1)]
    return static(name, size, links, lambda: (1 + cosines(size)) / 3)


def torus(*side: Side, name: str, size: int, seed: int) -> Topology:
    """Two neighbours along each axis, with weight 1/(2d + 1) for d axes."""
    sides = side or square(size)
    if math.prod(sides) != size:
        raise BadInput(
            f"expected sides with a product of {size}, got {name}; change the sides or "
            "the number of ranks"
        )
    weight = 1 / (2 * len(sides) + 1)
    links = []
    for axis, length in enumerate(sides):
        step = math.prod(sides[axis + 1 :])

        def along(
            ranks: np.ndarray, by: int, length: int = length, step: int = step
        ) -> np.ndarray:
            place = ranks // step % length
            return ranks + ((place + by) % length - place) * step

        for by in (1, -1):
            source, dest = partial(along, by=-by), partial(along, by=by)
            links.append(Link(source, dest, constant(weight)))

    def spectrum() -> np.ndarray:
        sums = np.ix_(*map(cosines, sides))
        return weight * (1 + sum(sums, np.zeros(sides))).reshape(-1)

    return static(name, size, links, spectrum)


def exponential(*, name: str, size: int, seed: int) -> Topology:
    """Shifts 1, 2, 4, … in every round: a gap of 2/(lg p + 1) for p = 2^k."""
    shifts = shifts_of(size)
    weight = 1 / (len(shifts) + 1)
    links = [shift(size, distance, weight) for distance in shifts]

    def spectrum() -> np.ndarray:
        return weight * sum((modes(size, s) for s in shifts), np.ones(size))

    return static(name, size, links, spectrum)


def one_peer_exponential(*, name: str, size: int, seed: int) -> Topology:
    """One shift of 1, 2, 4, … in each round, with weight 1/2 (Assran 2019).

    Exact after lg p rounds if p is a power of 2 (Ying 2021).
    """
    shifts = shifts_of(size) or [0]
    period = len(shifts)
    return Topology(
        name,
        size,
        period,
        lambda t: [shift(size, shifts[t % period], 1 / 2)],
        spectrum=lambda t: (1 + modes(size, shifts[t % period])) / 2,
    )


def shifts_of(size: int) -> list[int]:
    """Return the powers of 2 below size."""
    return [1 << k for k in range((size - 1).bit_length())]


def hypercube(*, name: str, size: int, seed: int) -> Topology:
    """The lg p ranks whose numbers differ in one bit: a gap of 2/(lg p + 1)."""
    if size & (size - 1):
        raise BadInput(
            f"expected a power of 2 for {name}, got {size} ranks; pass a power of 2, "
            "or another topology"
        )
    bits = size.bit_length() - 1
    weight = constant(1 / (bits + 1))
    links = []
    for bit in range(bits):

        def partner(ranks: np.ndarray, bit: int = bit) -> np.ndarray:
            return ranks ^ (1 << bit)

        links.append(Link(partner, partner, weight))

    def spectrum() -> np.ndarray:
        ones = sum((np.arange(size) >> bit & 1 for bit in range(bits)), np.zeros(size))
        return 1 - 2 * ones / (bits + 1)

    return static(name, size, links, spectrum)


def branches(*, name: str, size: int, seed: int) -> Topology:
    """The edges of a tree, with Metropolis weights 1/(1 + the larger degree)."""
    tree = tree_of(name, size)

    def weight(ranks: np.ndarray, partner: Callable) -> np.ndarray:
        larger = np.maximum(tree.degree(ranks), tree.degree(partner(ranks)))
        return 1 / (1 + larger)

    def links(t: int) -> list[Link]:
        of_tree = []
        for k in range(min(tree.arity, size - 1)):
            child, parent = partial(tree.child, k=k), partial(tree.parent_of, k=k)
            of_tree.append(Link(child, parent, partial(weight, partner=child)))
            of_tree.append(Link(parent, child, partial(weight, partner=parent)))
        return of_tree

    return Topology(name, size, 1, links)


def square(size: int) -> tuple[int, int]:
    """Return the two factors of a number that are closest to each other."""
    low = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    return low, size // low
