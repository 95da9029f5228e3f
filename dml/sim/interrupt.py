"""Computing that a message cuts off: at once on virtual ranks, by polling on real."""

from collections.abc import Callable, Iterator
from typing import Any

from dml.types import Request

LOOK = 2e-4  # seconds that a real rank sleeps between two looks for the message


def compute(comm: Any, seconds: float, unless: Request | None = None) -> bool:
    """Take seconds, unless a request is done before; say whether they passed."""
    if unless is None:
        comm.compute(seconds)
        return True
    real = comm.network is None  # comm.machine would be a collective call
    return (asleep if real else alarmed)(comm, comm.Wtime() + seconds, unless)


def asleep(comm: Any, end: float, unless: Request) -> bool:
    while (left := end - comm.Wtime()) > 0:
        if unless.Test():
            return False
        comm.compute(min(left, LOOK))
    return True


def alarmed(comm: Any, end: float, unless: Any) -> bool:
    """Wait for the message, or for the alarm that the world rings at the end."""
    process = comm.process

    def ring() -> None:
        if process.waits is unless:
            process.wake()

    if unless.done < 0:
        process.world.at(end, process.rank, ring)
        process.wait(unless)
    passed = not 0 <= unless.done < end
    process.clock = end if passed else max(process.clock, unless.done)
    return passed


def straggler(
    comm: Any, draws: Iterator[float], scale: float = 1.0
) -> Callable[[Request | None], bool]:
    """Return the work of a rank that computes nothing, but takes the time drawn."""
    return lambda unless: compute(comm, scale * next(draws), unless)
