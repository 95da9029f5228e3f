"""Majority vote of signs (Bernstein 2018): an element has the sign of most ranks.

    rank 0    + - - -      the owner of a chunk counts the negative signs:
    rank 1    + - + -          0 3 1 2
    rank 2    + - + +          + - + -      times the sum of the mean |values|

A tie is positive, and zero counts as positive. Two phases, as in a reduce-scatter and
all-gather: signs to the owners of chunks, and the signs of the majority to all ranks.
2(p-1) rounds, 2(p-1)/p · n/8 bytes sent by each rank, and one float32 by an all-reduce.
With one rank it is the scaled sign.

The counters are bit-sliced: bit i of word k of a plane belongs to element 64k + i, so
one addition counts 64 votes.

    plane 0    1 0 1 ...     counters begin at 2^K - t, for t votes of a majority:
    plane 1    0 1 1 ...     plane K is set where at least t votes were counted
"""

from typing import Any

import numpy as np
from numba import njit

from dml.types import AllReduce, Comm
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import chunks
from dml.wire.reducers.codecs.signs import add_signs, pack_signs
from dml.wire.reducers.lossy import Lossy

WORD = 64  # signs in a word
BLOCK = 512  # words that are counted at once, in the cache of a core


def vote(allreduce: AllReduce) -> Lossy:
    """Return the majority of the signs times the sum of the mean absolute values.

    Args:
      allreduce: Sums the mean absolute values.
    """

    def start(layout: TreeLayout) -> None:
        return None

    def add_up(comm: Comm, term: np.ndarray, lost: Any, state: None) -> None:
        words = np.zeros(-(-len(term) // WORD), np.uint64)
        above, below, _ = pack_signs(term, words.view(np.uint8)[: -(-len(term) // 8)])
        size = np.array([(above - below) / len(term)], np.float32)
        allreduce(comm, size, op=np.add)
        signs = majority(comm, words)
        term[:] = 0
        add_signs(signs.view(np.uint8), size[0], -size[0], term)

    return Lossy(start, add_up)


def majority(comm: Comm, words: np.ndarray) -> np.ndarray:
    """Return the bits that are set on more than half of the ranks; collective."""
    parts = chunks(len(words), comm.size)
    own = parts[comm.rank]
    planes = counters(own.stop - own.start, comm.size)
    count(words[own], planes)
    for k in range(1, comm.size):
        dest, source = (comm.rank + k) % comm.size, (comm.rank - k) % comm.size
        incoming = np.empty(own.stop - own.start, np.uint64)
        comm.Sendrecv(
            words[parts[dest]], dest, Tag.ALL_TO_ALL, incoming, source, Tag.ALL_TO_ALL
        )
        count(incoming, planes)
    lengths = np.array([part.stop - part.start for part in parts])
    return all_gather_parts(comm, planes[-1], lengths)


def counters(length: int, voters: int) -> np.ndarray:
    """Return planes whose last one is set by the vote that makes a majority."""
    bits = voters.bit_length()
    first = (1 << bits) - (voters // 2 + 1)
    planes = np.zeros((bits + 1, length), np.uint64)
    for k in range(bits):
        planes[k] = np.uint64(-(first >> k & 1) & (1 << WORD) - 1)
    return planes


@njit(nogil=True, cache=True)
def count(words, planes):
    """Add one bit to each counter, with carry from plane to plane."""
    for first in range(0, len(words), BLOCK):
        carry = words[first : first + BLOCK].copy()
        for k in range(len(planes)):
            part = planes[k, first : first + BLOCK]
            for w in range(len(part)):
                both = part[w] & carry[w]
                part[w] ^= carry[w]
                carry[w] = both
