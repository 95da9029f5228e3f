"""A shared window of the ranks of one host, with a barrier without messages."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NAMES = "/dev/shm/mpich_shm_"
HEADER = 4096  # bytes before each rank's part: its flag, on a page of its own


class HostWindow:
    """Owns an MPI shared window; part r has rank r's bytes, which all ranks map."""

    def __init__(
        self, comm: Any, win: Any, raw: Sequence[memoryview], free: Callable[[], None]
    ):
        self.comm, self.win, self.free = comm, win, free
        self.parts = [np.frombuffer(memory, np.uint8)[HEADER:] for memory in raw]
        flags = [memory[:8].cast("q") for memory in raw]
        self.mine = flags[comm.rank]
        self.others = [pair for pair in enumerate(flags) if pair[0] != comm.rank]
        self.count = 0

    def barrier(self, pause: Callable[[], object] = os.sched_yield) -> None:
        """Wait until all ranks have called: a barrier. Earlier stores are visible.

        Each rank counts its calls in a flag that the others read: no message, and no
        switch of processes where every rank has a core.
        """
        self.count = count = self.count + 1
        self.win.Sync()  # my stores before my flag
        self.mine[0] = count
        for peer, flag in self.others:
            if flag[0] < count:
                self.comm.call = ("barrier", "rank", peer, 0, b"")
                while flag[0] < count:
                    pause()
                self.comm.call = None
        self.win.Sync()  # their flags before my loads

    def Free(self) -> None:
        """Free the memory; collective. No array in it may be used afterwards."""
        self.parts, self.others = [], []
        self.free()


def unlink_names(maps: Path = Path("/proc/self/maps")) -> None:
    """Remove the names of MPICH's shared memory that this process maps.

    All ranks have mapped it. Memory without a name ends with its last process; MPICH
    removes the name only when ranks end well.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        path = line[line.find("/") :]
        if path.startswith(NAMES) and not path.endswith(" (deleted)"):
            Path(path).unlink(missing_ok=True)  # all ranks of a host do
