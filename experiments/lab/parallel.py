"""Calls in several processes, each on one core."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

Item, Result = TypeVar("Item"), TypeVar("Result")

# read at the start of a process by OpenMP, OpenBLAS, MKL, Numba and XLA
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NPROC",
)


def results(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    prepare: Callable[[], object],
) -> Iterator[Result]:
    """Yield call(item) of each item, in order.

    Args:
      call: Function that can be pickled.
      items: Arguments.
      processes: Number of processes; with 1 the calls are made in this process.
      prepare: Called once in each process, before the first `call`; can be pickled.
    """
    if processes == 1:
        prepare()
        yield from map(call, items)
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))  # of the processes to be started
    pool = ProcessPoolExecutor(processes, get_context("spawn"), start, (prepare,))
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def start(prepare: Callable[[], object]) -> None:
    """Prepare a process: its parent receives Ctrl-C, and it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()
    prepare()


def end_with_parent() -> None:
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)
