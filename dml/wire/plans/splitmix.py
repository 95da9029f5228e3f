"""The output function of SplitMix64 (Steele 2014): a hash of 64-bit integers.

    mix(seed), mix(seed + GOLDEN), mix(seed + 2 GOLDEN), ...    pseudo-random numbers

It is a bijection. Compiled loops use `njit(inline="always")(mix)`.
"""

from typing import Any

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio


def mix(z: Any) -> Any:
    """Return hashes of an array of uint64, or of one uint64 in compiled code."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
