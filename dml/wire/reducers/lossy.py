"""Reducers that lose information, with and without error feedback.

    term + error ──► encode ──► all ranks decode and add, in rank order ──► mean
       ▲                 │
       └── error ◄── minus what was sent

Error feedback (Seide 2014, Karimireddy 2019) adds to each term what earlier steps did
not send: everything sent plus the last error is the sum of all terms. Biased codes need
it to converge; for unbiased codes it would only add variance.

All ranks decode the same bytes, so that replicas remain equal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm, Reducer
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.comm.buffers import Layout
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import seed_of

# (comm, term, sent, state) -> next state. The term receives the sum over ranks. `sent`
# receives this rank's contribution to the sum; None: it is not needed.
Sum = Callable[[Comm, np.ndarray, np.ndarray | None, Any], Any]


class Lossy(NamedTuple):
    """A sum over ranks that loses information.

    Attributes:
      init: layout of the gradient -> the state of this rank.
      sum: See `Sum`.
      unbiased: Whether the expected sum is exact.
    """

    init: Callable[[Layout], Any]
    sum: Sum
    unbiased: bool = False


def gathered(codec: Codec) -> Lossy:
    """Return the sum of codes that all ranks gather.

    Every term is coded once. (p-1) codes are sent by each rank, so fewer bytes than by
    a ring of floats only if p is less than twice the compression ratio.
    """

    def start(layout: Layout) -> np.ndarray:
        return np.zeros(1, np.int64)  # number of steps, for random numbers

    def add_up(comm: Comm, term: np.ndarray, sent: Any, step: np.ndarray) -> np.ndarray:
        length = codec.nbytes(len(term))
        codes = np.empty(comm.size * length, np.uint8)
        each = codes.reshape(comm.size, length)
        own = each[comm.rank]
        codec.encode(term, own, seed_of(int(step[0]), comm.rank))
        all_gather(comm, codes)
        if sent is not None:
            sent[:] = 0
            codec.add(own, sent)
        term[:] = 0
        # order matters: the same on all ranks, so that replicas are equal
        for code in each:
            codec.add(code, term)
        return step + 1

    return Lossy(start, add_up, codec.unbiased)


def compressed(lossy: Lossy, allreduce: AllReduce, feedback: bool = False) -> Reducer:
    """Return the reducer of a lossy sum.

    Args:
      lossy: Sum of the gradients.
      allreduce: Sums the scalars after the gradient exactly.
      feedback: Whether to add the error of earlier steps to each term.
    """
    if feedback and lossy.unbiased:
        raise BadInput(
            "expected a biased code with feedback, got an unbiased one, whose errors "
            "cancel out over steps by themselves; leave +feedback out"
        )

    def init(layout: Layout) -> Any:
        error = np.zeros(layout.length, np.float32) if feedback else None
        # the length is in the structure, which is not saved with the leaves
        return {layout.length: (error, lossy.init(layout))}

    def reduce(comm: Comm, buffer: np.ndarray, state: Any) -> Any:
        ((length, (error, inner)),) = state.items()
        term, scalars = buffer[:length], buffer[length:]
        check_dtype(comm, term)
        if length and error is None:
            inner = lossy.sum(comm, term, None, inner)
        elif length:
            total, sent = term + error, np.empty_like(term)
            term[:] = total
            inner = lossy.sum(comm, term, sent, inner)
            error = total - sent
        if len(scalars):
            allreduce(comm, scalars, op=np.add)
        return {length: (error, inner)}

    return Reducer(init, reduce)


def check_dtype(comm: Comm, term: np.ndarray) -> None:
    """Raise BadInput unless the gradient is float32."""
    if term.dtype != np.float32:
        raise BadInput(
            f"rank {comm.rank}: expected float32 for a compressed gradient, got "
            f"{term.dtype}; pass --reduce=exact"
        )
