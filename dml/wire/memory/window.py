"""A shared-memory window of the ranks of one host, with a barrier in that memory."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAMES = "/dev/shm/mpich_shm_"
HEADER = 4096  # bytes before each rank's part: a page with the rank's flag


class HostWindow:
    """An MPI shared window: part r is the memory of rank r, mapped by all ranks."""

    def __init__(
        self, comm: Any, win: Any, raw: Sequence[memoryview], free: Callable[[], None]
    ):
        self.comm, self.win, self.free = comm, win, free
        self.parts = [np.frombuffer(memory, np.uint8)[HEADER:] for memory in raw]
        flags = [memory[:8].cast("q") for memory in raw]
        self.own = flags[comm.rank]
        self.others = [
            (rank, flag) for rank, flag in enumerate(flags) if rank != comm.rank
        ]
        self.calls = 0  # of barrier

    def barrier(self, pause: Callable[[], object] = os.sched_yield) -> None:
        """Wait until all ranks have called; then all their earlier stores are visible.

        Each rank counts its calls in a flag that the other ranks read. No messages are
        sent. `pause` is called repeatedly while waiting.
        """
        self.calls = calls = self.calls + 1
        self.win.Sync()  # this rank's stores before its flag
        self.own[0] = calls
        for peer, flag in self.others:
            if flag[0] < calls:
                self.comm.call = ("barrier", "rank", peer, 0, b"")
                while flag[0] < calls:
                    pause()
                self.comm.call = None
        self.win.Sync()  # the other ranks' flags before this rank's loads

    def Free(self) -> None:
        """Free the memory; collective. Arrays in it become invalid."""
        self.parts, self.others = [], []
        self.free()


def unlink_names(maps: Path = Path("/proc/self/maps")) -> None:
    """Delete the files of MPICH's shared memory that this process maps.

    Call this function after all ranks have mapped the memory. The system then frees it
    at the end of the last process. MPICH itself deletes the files only if all ranks end
    without error.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        path = line[line.find("/") :]
        if path.startswith(NAMES) and not path.endswith(" (deleted)"):
            Path(path).unlink(missing_ok=True)  # another rank may have deleted it
