"""Random numbers of a kernel: a hash of a seed and a position."""

from collections.abc import Iterator

import numpy as np
from numba import njit

GOLDEN = 0x9E3779B9  # 2³² divided by the golden ratio


@njit(nogil=True, cache=True, inline="always")
def uniform(seed, n):
    """Return a float32 in [0, 1), a multiple of 2^-24, for position n.

    The hash is the finalizer of MurmurHash3 (Appleby).
    """
    return np.float32(hashed(seed, n) >> np.uint32(8)) * np.float32(2.0**-24)


@njit(nogil=True, cache=True, inline="always")
def hashed(seed, n):
    """Return 32 random bits for position n."""
    h = np.uint32(np.uint32(n) * np.uint32(GOLDEN) + np.uint32(seed))
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h = np.uint32(h ^ (h >> np.uint32(13)))
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ (h >> np.uint32(16)))


def seed_of(step: int, rank: int) -> int:
    """Return the seed of a rank's code in a step; different for all ranks and steps."""
    bits = np.random.SeedSequence([step, rank]).generate_state(1)
    return int(bits[0])


def seeds_from(seed: int) -> Iterator[int]:
    """Yield seeds of several codes of one rank and step."""
    while True:
        yield seed
        seed = (seed + 0x632BE5AB) & 0xFFFFFFFF
