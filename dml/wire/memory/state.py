"""The arguments of compiled loops: shared state, worker, order and pace."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.wire.memory.atomics import LINE

Allocate = Callable[[int, Any], np.ndarray]  # length, dtype -> a zeroed vector


class Sync(NamedTuple):
    """Locks, turns and flags, by which workers wait for one another."""

    locks: np.ndarray  # int32, one a row
    whole: np.ndarray  # int32, one: the global lock
    turn: np.ndarray  # int64, one: the step whose turn it is
    flags: np.ndarray  # int64: the barriers of each worker, a cache line apart


class State(NamedTuple):
    """The table, its momentum, and the synchronisation of its workers."""

    table: np.ndarray  # T numbers or TxD
    velocity: np.ndarray  # of momentum, shaped as the table; empty: none
    hits: np.ndarray  # int32: how often each row was changed; empty: not counted
    sync: Sync


class Worker(NamedTuple):
    """The number of a worker, and of all workers."""

    me: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Order(NamedTuple):
    """The order in which an epoch visits blocks of examples.

    visits: numbers of blocks, int64.
    batch: examples in a block; the last one may be shorter.
    steps: examples of all blocks.
    bounds: part n has visits[bounds[n] : bounds[n + 1]], and a loss of its own; None:
        all blocks are one part.
    """

    visits: np.ndarray
    batch: int
    steps: int
    bounds: Any = None  # int64


class Pace(NamedTuple):
    """The rate and momentum, of the table's dtype, and the delay of an epoch."""

    rate: Any
    momentum: Any
    delay: int  # reads of a number before each change: a gradient that takes longer


def state(
    start: np.ndarray, workers: int, momentum: bool, counting: bool, allocate: Allocate
) -> State:
    """Allocate a table shaped as start, not filled, and the state of its workers."""
    rows = len(start)

    def table(rows: int) -> np.ndarray:
        found = allocate(rows * start[0].size, start.dtype)
        return found.reshape(rows, *start.shape[1:])

    sync = Sync(
        allocate(rows, np.int32),
        allocate(LINE, np.int32),
        allocate(LINE, np.int64),
        allocate(workers * LINE, np.int64),
    )
    hits = allocate(rows if counting else 0, np.int32)
    return State(table(rows), table(rows if momentum else 0), hits, sync)
