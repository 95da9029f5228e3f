"""Calls in several processes, each on one core."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

from lab.progress import PROGRESS

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
      processes: Largest number of processes; 0: one for each core. In a single process
        the calls are made in this one.
      prepare: Called once in each process, before the first `call`; can be pickled.
    """
    processes = min(processes or len(os.sched_getaffinity(0)), len(items))
    if processes <= 1:
        prepare()
        yield from map(call, items)
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))  # of the processes to be started
    pool = ProcessPoolExecutor(processes, get_context("spawn"), start, (prepare,))
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def groups(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    size: int,
    processes: int,
    prepare: Callable[[], object],
) -> Iterator[list[Result]]:
    """Yield the results of `size` consecutive items at a time; show the progress.

    Args:
      call, items, processes, prepare: See `results`.
      size: Number of items of a group, such as the trainings by different seeds. The
        status line has the text of the item that was last.
    """
    group: list[Result] = []
    for item, result in zip(
        items, results(call, items, processes, prepare), strict=True
    ):
        PROGRESS.step(str(item), len(items))
        group.append(result)
        if len(group) == size:
            yield group
            group = []


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
