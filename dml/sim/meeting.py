"""Where all ranks of a virtual communicator come together, with or without waiting."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.sim.process import Process
from dml.types import BadInput


class Meeting:
    """Ranks of one communicator that have come to a collective call."""

    def __init__(self, name: str, size: int):
        self.name = name
        self.values: list[Any] = [None] * size
        self.came: list[Process] = []
        self.done = -1.0
        self.result: Any = None

    def describe(self) -> str:
        return f"{self.name}(), where {len(self.came)} of {len(self.values)} ranks are"


def meet(
    comm: Any,
    name: str,
    value: Any,
    conclude: Callable[[list], Any],
    cost: float = 0,
    pause: Any = None,
) -> Any:
    """Wait for all ranks; the last one concludes from their values."""
    process = comm.process
    meeting = comm.shared.meeting
    if meeting is None:
        meeting = comm.shared.meeting = Meeting(name, comm.size)
    if meeting.name != name:
        raise BadInput(
            f"rank {comm.rank} calls {name}() where {len(meeting.came)} of "
            f"{comm.size} ranks call {meeting.name}(); all must call the same"
        )
    process.world.progress()
    meeting.values[comm.rank] = value
    meeting.came.append(process)
    if len(meeting.came) == comm.size:
        comm.shared.meeting = None
        meeting.result = conclude(meeting.values)
        rounds = (comm.size - 1).bit_length()
        start = max(process.clock for process in meeting.came)
        meeting.done = start + rounds * comm.alpha + cost
        for peer in reversed(comm.peers):  # rank 0 goes on first: neighbours in memory
            if peer.process.waits is meeting:
                peer.process.wake()
    elif pause is None:
        process.wait(meeting)
    if pause is None:
        process.clock = max(process.clock, meeting.done)
    while not 0 <= meeting.done <= process.clock:
        process.polls = meeting
        process.pause()
        if not 0 <= meeting.done <= process.clock:
            pause()
    process.polls = None
    return meeting.result


class VirtualWindow:
    """Shared memory of a virtual host."""

    def __init__(self, comm: Any, parts: list[np.ndarray]):
        self.comm, self.parts = comm, parts

    def barrier(self, pause: Any = None) -> None:
        """Meet all ranks, as `Barrier` does; a pause of another kind is for polling."""
        if pause == self.comm.process.pause:
            pause = None
        meet(self.comm, "barrier", None, lambda values: None, pause=pause)

    def Free(self) -> None:
        self.parts = []
