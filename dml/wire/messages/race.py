"""Race collectives against each other: alternating, so that drift meets all alike."""

from collections.abc import Callable, Mapping

import numpy as np

from dml.types import Comm
from dml.wire.messages.butterfly import butterfly_allreduce

LEAST = 2e-3  # seconds that one timing lasts at least, by calls in a row
MOST = 256  # calls in a row


def race(
    comm: Comm, contenders: Mapping[str, Callable[[], None]], repeats: int
) -> dict[str, float]:
    """Time every contender `repeats` times by turns: seconds a call, by name.

    Each is the median over the repeats of the slowest rank's time. Virtual time does
    not vary, so there one call is enough.
    """
    times = np.zeros((len(contenders), repeats if comm.machine else 1))
    calls = [enough(comm, call) for call in contenders.values()]
    for repeat in range(times.shape[1]):
        for row, call in enumerate(contenders.values()):
            times[row, repeat] = lap(comm, call, calls[row])
    butterfly_allreduce(comm, times, np.maximum)
    medians = np.median(times, axis=1).tolist()
    return dict(zip(contenders, medians, strict=True))


def enough(comm: Comm, call: Callable[[], None]) -> int:
    """Warm up; count the calls that last long enough to be timed."""
    call()
    took = np.array([lap(comm, call, 1)])
    butterfly_allreduce(comm, took, np.maximum)
    if not comm.machine:
        return 1
    return int(np.clip(LEAST / took[0], 1, MOST))


def lap(comm: Comm, call: Callable[[], None], calls: int) -> float:
    comm.Barrier()
    start = comm.Wtime()
    for _ in range(calls):
        call()
    return (comm.Wtime() - start) / calls
