"""BytePS on virtual ranks compared with the paper's formula.

n workers have gradients; k = 0 ... n spare hosts sum gradients and have none.
"""

from collections.abc import Iterator

import numpy as np

from dml import sim
from dml.runs.writers import Row
from dml.types import Comm
from dml.wire.collectives.byteps import byteps_allreduce
from dml.wire.costs.allreduce import Job, Rates, byteps_seconds
from dml.wire.plans.byteps import byteps_pieces

LENGTH = 1 << 20  # elements of the buffer
RATES = Rates(*sim.Uniform()[:3])
SEGMENTS = 8  # segments of a piece; with more, times approach the formula


def rows(workers: int) -> Iterator[Row]:
    """Yield a row for each number of spare hosts."""
    for spare in range(workers + 1):
        yield row(workers, spare, LENGTH, RATES)


def row(n: int, k: int, length: int, rates: Rates, itemsize: int = 4) -> Row:
    """Run BytePS with the bandwidth only and with all rates; return the row.

    n: number of workers.
    k: number of spare hosts.
    length: elements of the buffer, rounded down to even pieces.
    rates: rates of the network.
    itemsize: bytes of an element.
    """
    unit = n * n + k * n - 2 * k
    length -= length % (unit * SEGMENTS)
    job = Job(n + k, length, itemsize, segment=length * itemsize // (unit * SEGMENTS))
    pieces, stages = byteps_pieces(n, k, length * itemsize, job.segment)
    bandwidth = Rates(0.0, rates.beta, 0.0)
    paper = 2 * n * (n - 1) * length * itemsize * rates.beta / unit
    return {
        "n": n,
        "k": k,
        "spare_share": stages / pieces if k else 0.0,
        "worker_share": (pieces - k * stages) / pieces / n,
        "paper_seconds": paper,
        "bandwidth_seconds": run(job, k, bandwidth),
        "drained": 1 + 1 / stages if k else 1.0,
        "seconds": run(job, k, rates),
        "predicted_seconds": byteps_seconds(job, rates, k),
    }


def run(job: Job, spare: int, rates: Rates) -> float:
    """Return the seconds of the slowest virtual rank."""

    def program(comm: Comm) -> float:
        buffer = np.full(job.length, comm.rank, f"f{job.itemsize}")
        byteps_allreduce(comm, buffer, spare=spare, segment=job.segment)
        return comm.Wtime()

    return max(sim.run(program, job.size, sim.Uniform(*rates[:3])))
