"""Random numbers as a pure function of integers, for environments and policies.

    number = hash(stream, seed, episode or actor, step, index)

No generator has a state, so numbers depend neither on the number of copies of an
environment nor on the order in which copies or actors step.

The hash chains the finalizer of SplitMix64 (Steele 2014) over the integers.
"""

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio
ENVIRONMENT, POLICY = 1, 2  # streams


@njit(inline="always")
def mix(h):
    """Return the finalizer of SplitMix64 of an integer; it is a bijection."""
    h = np.uint64(h)
    h = np.uint64((h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    h = np.uint64((h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return np.uint64(h ^ (h >> np.uint64(31)))


@njit(inline="always")
def chain(h, number):
    """Return the hash of a hash and a further integer."""
    return mix(np.uint64(h + np.uint64(number)) + GOLDEN)


@njit(inline="always")
def key(stream, seed, episode, step):
    """Return the hash of stream, seed, episode and step, the key of `number`."""
    h = chain(np.uint64(stream), seed)
    return chain(chain(h, episode), step)


@njit(inline="always")
def number(key, index):
    """Return a uniform number in [0, 1), a multiple of 2⁻⁵³."""
    return np.float64(chain(key, index) >> np.uint64(11)) * 2.0**-53


@njit(nogil=True, cache=True)
def write_uniform(seed, actor, step, out):
    """Write uniform numbers in [0, 1), multiples of 2⁻²⁴, which float32 represents."""
    h = key(POLICY, seed, actor, step)
    for n in range(len(out)):
        bits = chain(h, n) >> np.uint64(40)
        out[n] = np.float32(np.float64(bits) * 2.0**-24)


def uniform(seed: int, actor: int, step: int, count: int) -> np.ndarray:
    """Return uniform numbers in [0, 1) in float32 for a step of an actor.

    Args:
      seed: Seed of the run.
      actor: Rank of the actor.
      step: Number of the actor's step.
      count: Number of numbers; the first numbers do not depend on it.
    """
    out = np.empty(count, np.float32)
    write_uniform(seed, actor, step, out)
    return out
