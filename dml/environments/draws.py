"""Random numbers as a pure function of integers, for environments and policies.

    number = hash(stream, seed, episode or actor, step, index)

No generator has a state, so numbers depend neither on the number of copies of an
environment nor on the order in which copies or actors step.

The hash chains the output function of SplitMix64 over the integers.
"""

import numpy as np
from numba import njit

from dml.wire.plans import splitmix
from dml.wire.plans.splitmix import GOLDEN

ENVIRONMENT, POLICY = 1, 2  # streams


mix = njit(inline="always")(splitmix.mix)


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
