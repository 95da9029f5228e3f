"""Random elements: all ranks draw the same positions, whose values are summed exactly.

    step 1    0.4  -0.1   0.0  -0.5      positions 1 and 3 of every rank
    sent           -0.1        -0.5      k values by any all-reduce; no positions

Without feedback the values are multiplied by n/k, which makes the sum unbiased; with
feedback they are not. Words: those of an all-reduce of k values.
"""

import math
from typing import Any

import numpy as np

from dml.types import AllReduce, Comm
from dml.wire.comm.buffers import TreeLayout
from dml.wire.reducers.codecs import check_fraction
from dml.wire.reducers.codecs.hashing import seed_of, stream_of
from dml.wire.reducers.lossy import Lossy, Steps


def random_k(fraction: float, allreduce: AllReduce, feedback: bool = False) -> Lossy:
    """Return the sum of ⌈fraction · n⌉ random elements of n.

    Args:
      fraction: Share of the elements that is sent.
      allreduce: Sums the values.
      feedback: Whether the values are sent as they are, for error feedback.
    """
    check_fraction(fraction)

    def start(layout: TreeLayout) -> Steps:
        return {stream_of(layout): np.zeros(1, np.int64)}

    def add_up(comm: Comm, term: np.ndarray, lost: Any, steps: Steps) -> Steps:
        ((stream, step),) = steps.items()
        k = math.ceil(fraction * len(term))
        # order matters: the same positions on all ranks, so the seed has no rank
        draws = np.random.default_rng(seed_of(int(step[0]), 0, stream))
        positions = draws.choice(len(term), k, replace=False, shuffle=False)
        values = term[positions]
        if not feedback:
            values *= np.float32(len(term) / k)
        if lost is not None:
            lost[:] = term
            lost[positions] = 0
        allreduce(comm, values, op=np.add)
        term[:] = 0
        term[positions] = values
        return {stream: step + 1}

    return Lossy(start, add_up, unbiased=not feedback)
