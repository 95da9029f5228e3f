"""Reduce-scatter of parts of any lengths, with sums in rank order."""

from collections.abc import Sequence

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.all_to_all import send_parts
from dml.wire.comm.plain import as_comm


def sum_parts(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], op: Op = np.add
) -> None:
    """Reduce parts[r] over all ranks into the buffer of rank r.

        rank 0   a0 b0 c0      round k = 1 … p-1: rank r sends part r+k of its buffer,
        rank 1   a1 b1 c1      and receives part r of the buffer of rank r-k (mod p);
        rank 2   a2 b2 c2      then rank 0 has a0 + a1 + a2, rank 1 b0 + b1 + b2, …

    Every element is ((x_0 + x_1) + x_2) + … + x_{p-1}, as in `star_allreduce`. Parts
    may have any lengths, 0 too; the other parts of the buffer do not change.
    p-1 rounds, (p-1)n elements over all ranks; rank r sends n - n_r. With equal parts:
    (p-1)α + (p-1)/p·n(β + γ). A rank stores (p-1)n_r received elements.

    Args:
      comm: The ranks.
      buffer: A vector, of one length on all ranks.
      parts: The part of each rank.
      op: The reduction.
    """
    comm = as_comm(comm)
    own = buffer[parts[comm.rank]]
    received = [np.empty_like(own) for _ in range(comm.size)]
    received[comm.rank] = own
    send_parts(comm, [buffer[part] for part in parts], received)
    # order matters: in rank order the result is bit-identical to a serial sum
    total = received[0] if comm.rank else own.copy()
    for term in received[1:]:
        comm.Reduce_local(term, total, op)
    own[:] = total
