"""State of a process: open windows, and calls before the end of MPI."""

import atexit
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dml.wire.comm.mpi_library import MPI, is_fault_tolerant

Windows = dict[tuple, MPI.Win]  # by lineage; see `World.lineage`


@dataclass
class Process:
    """State that the communicators of a process share.

    Attributes:
      windows: Windows that are not freed yet.
      duplicates: Number of the last duplicate of a communicator of mpi4py.
    """

    windows: Windows = field(default_factory=dict)
    duplicates: int = 0


@functools.cache
def this_process() -> Process:
    """Return the state of this process, whose windows are freed before MPI ends."""
    process = Process()
    if not is_fault_tolerant():  # freeing is collective and would wait for dead ranks
        before_finalize(lambda: free_windows(process.windows))
    return process


def free_windows(windows: Windows, lineage: tuple = ()) -> None:
    """Free the windows whose lineages begin with the given one; collective."""
    depth = len(lineage)
    # order matters: freeing is collective, and threads may have made the windows in
    # different orders
    for each in sorted(key for key in windows if key[:depth] == lineage):
        win = windows.pop(each)
        win.Unlock_all()
        win.Free()


def before_finalize(call: Callable[[], None]) -> None:
    """Call a function once, at the end of Python or in MPI.Finalize.

    The function that was passed last is called first.
    """
    calls = [call]

    def call_once(*_: Any) -> None:
        if calls:
            calls.pop()()

    atexit.register(call_once)
    # MPI.Finalize deletes the attributes of COMM_SELF first, in the reverse order
    MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=call_once), None)
