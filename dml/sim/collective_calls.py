"""Collective calls of a virtual communicator, blocking or polled."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.sim.failures import collective_failure
from dml.sim.process import Process
from dml.types import BadInput, RankFailed


class CollectiveCall:
    """A collective call in progress: the ranks that have entered it, and its result."""

    def __init__(self, name: str, size: int):
        self.name = name
        self.values: list[Any] = [None] * size  # contribution of each rank
        self.entered: list[Process] = []
        self.done = -1.0  # completion time in s; -1 before all ranks have entered
        self.result: Any = None

    def failure(self, comm: Any) -> str:
        """Return why this call cannot complete on a rank of `comm`; "" if it can."""
        if comm.shared.call is not self:
            return ""
        return collective_failure(comm, [process.rank for process in self.entered])

    def describe(self) -> str:
        return (
            f"{self.name}(), entered by {len(self.entered)} of {len(self.values)} ranks"
        )


def run_collective(
    comm: Any,
    name: str,
    value: Any,
    combine: Callable[[list], Any],
    cost: float = 0,
    pause: Any = None,
) -> Any:
    """Run a collective call; return its result, the same object on every rank.

    Args:
      comm: Communicator of one rank.
      name: Name of the call, for error messages.
      value: This rank's contribution.
      combine: Computes the result from all values; called by the last rank to enter.
      cost: Seconds of the call in addition to ⌈log₂ p⌉ rounds of α each.
      pause: Called while polling for the result; None blocks.
    """
    process = comm.process
    if process.clock >= process.end_time:
        process.end()
    call = comm.shared.call
    check(comm, call)
    if call is None:
        call = comm.shared.call = CollectiveCall(name, comm.size)
    if call.name != name:
        raise BadInput(
            f"rank {comm.rank} calls {name}() where {len(call.entered)} of "
            f"{comm.size} ranks called {call.name}(); call the same collective on all "
            "ranks"
        )
    process.world.progress()
    call.values[comm.rank] = value
    call.entered.append(process)
    if len(call.entered) == comm.size:
        comm.shared.call = None
        call.result = combine(call.values)
        rounds = (comm.size - 1).bit_length()
        start = max(process.clock for process in call.entered)
        call.done = start + rounds * comm.alpha + cost
        # `ready` is last in, first out: rank 0 resumes first, then ranks in order.
        for peer in reversed(comm.peers):
            if peer.process.waits is call:
                peer.process.wake()
    elif pause is None:
        process.wait(call)
    if pause is None:
        process.clock = max(process.clock, call.done)
    while not 0 <= call.done <= process.clock:
        check(comm, call)
        process.polls = call
        process.pause()
        if not 0 <= call.done <= process.clock:
            pause()
    process.polls = None
    return call.result


def check(comm: Any, call: CollectiveCall | None) -> None:
    """Raise RankFailed if a collective call cannot complete."""
    if comm.revoked or comm.shared.failed:
        entered = [process.rank for process in call.entered] if call else ()
        if reason := collective_failure(comm, entered):
            raise RankFailed(reason)


class VirtualWindow:
    """Shared memory of a virtual host: one array per rank."""

    def __init__(self, comm: Any, parts: list[np.ndarray]):
        self.comm, self.parts = comm, parts

    def barrier(self, pause: Any = None) -> None:
        """Wait for all ranks; if `pause` is given, call it while polling."""
        if pause == self.comm.process.pause:
            pause = None  # blocking also yields to the other ranks
        run_collective(self.comm, "barrier", None, lambda values: None, pause=pause)

    def Free(self) -> None:
        self.parts = []
