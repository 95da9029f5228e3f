"""1-bit Adam (Tang 2021): Adam, then signs of the momentum and a constant variance.

    warm-up    m ← β₁m + (1-β₁)g     v ← β₂v + (1-β₂)g²      g by an exact all-reduce
    after it   m/√v ← sum over ranks of code((β₁m/p + (1-β₁)g of the rank)/√v + error)

    direction = m̂/(√v̂ + ε)          the update rule is plain SGD

The code is the scaled sign with error feedback, of the ranks' terms and of their sums.
v has the gradients of the warm-up only. An element without a gradient in the warm-up
has v = 0, and remains unchanged afterwards. Bytes per update: those of the all-reduce
in the warm-up, then 1/32 of them.

Tang codes m instead of m/√v. A code has one magnitude for all elements, so those with a
small v then take large steps: on the digits of compressed.py such trainings diverge.
The elements of m/√v are of similar size.
"""

from typing import NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm, Memory, Reducer
from dml.wire.comm.buffers import TreeLayout
from dml.wire.reducers.codecs.hashing import seed_of
from dml.wire.reducers.codecs.signs import sign
from dml.wire.reducers.lossy import float32_reducer, refuse_statistics
from dml.wire.reducers.transports import automatic

B1, B2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Moments(NamedTuple):
    """The state of Adam, which is equal on all ranks.

    Attributes:
      step: Number of updates; one element.
      mean: m.
      square: v.
    """

    step: np.ndarray
    mean: np.ndarray
    square: np.ndarray


def one_bit_adam(warm_up: int, allreduce: AllReduce) -> Reducer:
    """Return the reducer that replaces the gradient by the direction of 1-bit Adam.

    Args:
      warm_up: Number of updates of exact Adam.
      allreduce: Sums the gradients of the warm-up, and the scalars after them.
    """
    if warm_up < 1:
        raise BadInput(
            f"expected a warm-up of at least 1 update of Adam, got {warm_up}; the "
            "variance is estimated in it"
        )
    codec = sign()

    def init(layout: TreeLayout) -> Memory:
        refuse_statistics(layout, "one_bit_adam")
        zeros = np.zeros(layout.length, np.float32)
        return Memory(zeros, Moments(np.zeros(1, np.int64), zeros, zeros))

    def reduce(comm: Comm, gradient: np.ndarray, memory: Memory) -> Memory:
        error, (step, mean, square) = memory
        step = step + 1
        t = int(step[0])
        if t <= warm_up:
            allreduce(comm, gradient, op=np.add)
            mean = B1 * mean + (1 - B1) * gradient
            square = B2 * square + (1 - B2) * gradient**2
            gradient[:] = mean * inverse(square, t)
        else:
            scale = inverse(square, warm_up)
            gradient *= 1 - B1
            gradient += B1 / np.float32(comm.size) * mean
            gradient *= scale
            gradient += error
            error = np.zeros_like(error)
            automatic(codec, comm, gradient, error, seed_of(t, comm.rank))
            gradient[scale == 0] = 0
            mean = np.divide(gradient, scale, out=np.zeros_like(mean), where=scale != 0)
        gradient /= 1 - B1**t
        return Memory(error, Moments(step, mean, square))

    return float32_reducer(init, reduce, allreduce)


def inverse(square: np.ndarray, t: int) -> np.ndarray:
    """Return 1/(√v̂ + ε) after t updates of v; 0 where v is 0."""
    deviation = np.sqrt(square / (1 - B2**t))
    return np.where(square == 0, np.float32(0), 1 / (deviation + EPSILON))
