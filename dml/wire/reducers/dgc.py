"""Deep gradient compression (Lin 2018): the largest accumulated momentum terms.

    u ← 0.9 u + g       momentum of this rank's terms
    v ← v + u           what is not yet sent
    sent                the largest ⌈fraction · n⌉ elements of v
    u, v ← 0            where an element was sent

The sum of what all ranks sent is an update with momentum: the update rule is plain SGD.
Masking u prevents that old momentum moves an element that was just sent. In the warm-up
the fraction decreases: 1/4, 1/16, 1/64, ..., for 64 updates each. Bytes per rank and
update: (p-1) · 8⌈fraction · n⌉, sent by an all-gather of positions and values.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from dml.types import AllReduce, Comm, Memory, Reducer
from dml.wire.comm.buffers import TreeLayout
from dml.wire.reducers.codecs import Codec, check_fraction
from dml.wire.reducers.codecs.largest import top_k
from dml.wire.reducers.lossy import float32_reducer, refuse_statistics
from dml.wire.reducers.transports import gather

MOMENTUM = 0.9
STAGE = 64  # updates of a stage of the warm-up


class DgcSums(NamedTuple):
    """Sums of a rank's terms.

    Attributes:
      momentum: u.
      unsent: v.
    """

    momentum: np.ndarray
    unsent: np.ndarray


def dgc(fraction: float, allreduce: AllReduce) -> Reducer:
    """Return deep gradient compression.

    Args:
      fraction: Share of the elements that is sent after the warm-up.
      allreduce: Sums the scalars after the gradient.
    """
    check_fraction(fraction)
    codec = cache(top_k)

    def init(layout: TreeLayout) -> Memory:
        refuse_statistics(layout, "dgc")
        zeros = np.zeros(layout.length, np.float32)
        return Memory(DgcSums(zeros, zeros), np.zeros(1, np.int64))

    def reduce(comm: Comm, gradient: np.ndarray, memory: Memory) -> Memory:
        (momentum, unsent), step = memory
        selected = codec(max(fraction, 0.25 ** (1 + int(step[0]) // STAGE)))
        own = send_largest(comm, selected, gradient, momentum, unsent)
        return Memory(own, step + 1)

    return float32_reducer(init, reduce, allreduce)


def send_largest(
    comm: Comm,
    codec: Codec,
    gradient: np.ndarray,
    momentum: np.ndarray,
    unsent: np.ndarray,
) -> DgcSums:
    """Replace the gradient by the sum of what all ranks send; return the new sums."""
    momentum = np.float32(MOMENTUM) * momentum + gradient
    unsent = unsent + momentum
    gradient[:] = unsent
    left = np.zeros_like(unsent)
    gather(codec, comm, gradient, left, 0)
    momentum[left != unsent] = 0  # NaN differs from itself
    return DgcSums(momentum, left)
