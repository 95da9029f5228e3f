"""Runs with checkpoints and failures: running virtual ranks, and many runs in NumPy.

Each rank fails at random; lifetimes are exponential. After a failure all ranks restart
from the last checkpoint. Both simulations follow the time line of each failure and use
no formula; with one rank and equal lifetimes they take equal times.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.types import Comm
from dml.wire.costs.checkpointing import Failures

NOTICE = 1  # tag of the message of a rank that has failed
RUNS = 4000  # independent runs, which advance together


class Job(NamedTuple):
    """A run: its failures, the work between checkpoints, and the number of segments.

    Attributes:
      failures: Costs of checkpoints and failures.
      interval: Work between checkpoints in seconds.
      segments: Number of intervals of work.
    """

    failures: Failures
    interval: float
    segments: int


def virtual_seconds(job: Job, ranks: int, seed: int) -> float:
    """Return the virtual seconds of a run on running ranks.

    The mean lifetime of a rank is `ranks` times the mean of the run. Messages take no
    time, so that the network does not add to the closed form.
    """
    free = sim.Uniform(0.0, 0.0, 0.0)

    def program(comm: Comm) -> float:
        return run_rank(comm, job, lifetimes(job, ranks, comm.rank, seed))

    return max(sim.run(program, ranks, free))


def lifetimes(job: Job, ranks: int, rank: int, seed: int) -> Iterator[float]:
    """Yield the times between the failures of a rank."""
    random = np.random.default_rng((seed, rank))
    while True:
        yield float(random.exponential(job.failures.mean * ranks))


def run_rank(comm: Comm, job: Job, lifetimes: Iterator[float]) -> float:
    """Work, save, fail and restart on one rank; return the time of the end.

    A rank that fails sends a notice to all others, which stop at once.
    """
    done, restarting, fails = 0, False, next(lifetimes)
    notice = comm.Irecv(np.empty(0, np.uint8), tag=NOTICE)
    while done < job.segments:
        duration = job.failures.restart if restarting else segment(job)
        own = fails - comm.Wtime()
        if comm.platform.compute(min(own, duration), unless=notice):
            if own >= duration:
                done, restarting = done + (not restarting), False
                continue
            for other in range(comm.size):
                if other != comm.rank:
                    comm.Send(np.empty(0, np.uint8), other, NOTICE)
            fails = comm.Wtime() + next(lifetimes)
        else:
            notice.Wait()
            notice = comm.Irecv(np.empty(0, np.uint8), tag=NOTICE)
        restarting = True
    notice.Cancel()
    return comm.Wtime()


def segment(job: Job) -> float:
    """Return the seconds of work and checkpoint without a failure."""
    return job.interval + job.failures.checkpoint


def sampled_seconds(job: Job, seed: int, runs: int = RUNS) -> np.ndarray:
    """Return the seconds of many independent runs, by a loop over their events."""
    random = np.random.default_rng(seed)
    mean, restart = job.failures.mean, job.failures.restart
    seconds = np.zeros(runs)
    done = np.zeros(runs, np.int64)
    restarting = np.zeros(runs, bool)
    lifetime = random.exponential(mean, runs)  # time until the next failure
    active = np.arange(runs)
    while len(active):
        phase = np.where(restarting[active], restart, segment(job))
        failed = lifetime[active] < phase
        spent = np.where(failed, lifetime[active], phase)
        seconds[active] += spent
        lifetime[active] -= spent
        lifetime[active[failed]] = random.exponential(mean, failed.sum())
        done[active[~failed & ~restarting[active]]] += 1
        restarting[active] = failed
        active = active[done[active] < job.segments]
    return seconds
