"""Random numbers of a kernel: a hash of a seed and a position."""

from collections.abc import Iterator
from zlib import crc32

import numpy as np
from numba import njit

from dml.wire.comm.buffers import TreeLayout

GOLDEN = 0x9E3779B9  # 2³² divided by the golden ratio


@njit(nogil=True, cache=True)
def write_random(seed, first, random):
    """Write 32 random bits for each position from `first` on.

    The hash is the finalizer of MurmurHash3 (Appleby).
    """
    # in two loops: compilers then multiply numbers of 32 bits, not of 64
    for n in range(len(random)):
        random[n] = np.uint32(first + n) * np.uint32(GOLDEN) + np.uint32(seed)
    for n in range(len(random)):
        h = random[n]
        h = np.uint32(h ^ (h >> np.uint32(16)))
        h = np.uint32(h * np.uint32(0x85EBCA6B))
        h = np.uint32(h ^ (h >> np.uint32(13)))
        h = np.uint32(h * np.uint32(0xC2B2AE35))
        random[n] = h ^ (h >> np.uint32(16))


def seed_of(step: int, rank: int, stream: int = 0) -> int:
    """Return the seed of a rank's code in a step; different for all ranks and steps.

    Args:
      step: Number of the step.
      rank: Rank; the same number on all ranks if they draw the same numbers.
      stream: Number of the buffer of a step; see `stream_of`.
    """
    bits = np.random.SeedSequence([step, rank, stream]).generate_state(1)
    return int(bits[0])


def stream_of(layout: TreeLayout) -> int:
    """Return a hash of the names of a gradient's leaves, equal on all ranks.

    The buckets of a gradient have different names, and so different random numbers.
    """
    if layout.tree is None:
        return 0
    import jax

    leaves = jax.tree.unflatten(layout.tree, range(len(layout.shapes)))
    paths = jax.tree_util.tree_leaves_with_path(leaves)
    names = ",".join(jax.tree_util.keystr(path) for path, _ in paths)
    return crc32(names.encode())


def seeds_from(seed: int) -> Iterator[int]:
    """Yield seeds of several codes of one rank and step."""
    while True:
        yield seed
        seed = (seed + 0x632BE5AB) & 0xFFFFFFFF
