"""The arguments of compiled loops: state, worker, order and settings."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.wire.memory.atomics import LINE

Allocate = Callable[[int, Any], np.ndarray]  # length, dtype -> a zeroed vector


class Sync(NamedTuple):
    """Shared variables that synchronise workers."""

    locks: np.ndarray  # int32: the lock of each row
    global_lock: np.ndarray  # int32: the lock of the table, at index 0
    turn: np.ndarray  # int64: number of the step that may change the table, at index 0
    flags: np.ndarray  # int64: barrier counts of workers, LINE elements apart


# The name must not change: Numba reads it from the cache of compiled kernels.
class State(NamedTuple):
    """The table, its velocity, and the synchronisation of its workers."""

    table: np.ndarray  # shape T or TxD
    velocity: np.ndarray  # shaped as the table; empty without momentum
    hits: np.ndarray  # int32: number of changes of each row; empty if not counted
    sync: Sync


class Worker(NamedTuple):
    """The index of a worker, and the number of workers."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    count: int  # type: ignore[assignment]  # hides tuple.count


class Order(NamedTuple):
    """The order in which an epoch visits blocks of examples.

    Attributes:
      visits: Indices of blocks, int64.
      batch: Number of examples in a block; the last block may be shorter.
      steps: Number of examples in all blocks.
      bounds: Part n of the epoch is visits[bounds[n] : bounds[n + 1]]; losses are
        summed by part; int64. None: all blocks are one part.
    """

    visits: np.ndarray
    batch: int
    steps: int
    bounds: Any = None  # int64


class EpochSettings(NamedTuple):
    """Settings of an epoch; rate and momentum have the dtype of the table."""

    rate: Any  # learning rate
    momentum: Any  # momentum; 0 for none
    delay: int  # number of memory reads that simulate a slower gradient


def state(
    start: np.ndarray, workers: int, momentum: bool, counting: bool, allocate: Allocate
) -> State:
    """Allocate the state of workers, with a table of zeros in the shape of `start`.

    Args:
      start: An array with the shape and dtype of the table.
      workers: Number of workers.
      momentum: Whether to allocate a velocity.
      counting: Whether to count the changes of each row.
      allocate: (length, dtype) -> a zeroed vector.
    """
    rows = len(start)

    def table(rows: int) -> np.ndarray:
        vector = allocate(rows * start[0].size, start.dtype)
        return vector.reshape(rows, *start.shape[1:])

    sync = Sync(
        allocate(rows, np.int32),
        allocate(LINE, np.int32),
        allocate(LINE, np.int64),
        allocate(workers * LINE, np.int64),
    )
    hits = allocate(rows if counting else 0, np.int32)
    return State(table(rows), table(rows if momentum else 0), hits, sync)
