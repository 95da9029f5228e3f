"""One-shot all-reduce: every rank sends its buffer to all others, and adds all."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.exchanges.multiplying import (
    exchange,
    exchange_seconds,
    exchanges,
)
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.topology import SEGMENT, Fold


def one_shot_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks.

        rank 0   a ──► 1, 2, 3      a + b + c + d
        rank 1   b ──► 2, 3, 0      a + b + c + d
        rank 2   c ──► 3, 0, 1      a + b + c + d
        rank 3   d ──► 0, 1, 2      a + b + c + d

    In round k rank r sends to r + k and receives from r - k (mod p). Every element is
    ((x_0 + x_1) + x_2) + …: the bits are those of `star_allreduce`. One step if a rank
    has p - 1 ports; the cost model has one port. For short buffers and few ranks.
    p-1 rounds, p(p-1)n elements over all ranks, p buffers of memory:
    (p-1)(α + nβ + nγ).
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size > 1:
        exchange(comm, buffer, op, Fold(comm.size, 0), (1, comm.size))


def one_shot(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `one_shot_allreduce`, which has no segments."""
    yield from exchanges(np.arange(size), length * itemsize, [size])


def one_shot_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `one_shot_allreduce`; exact on the uniform network."""
    return exchange_seconds(job, rates, [job.size])
