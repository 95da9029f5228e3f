"""Where what is alive lies: a Schedule in, every stage's slots of memory out; numpy.

tick       0 1 2 3 4 5 6        Messages are sent at the end of a tick and put into
interval a ███████              a slot at the start of the next. What lives begins
         b   ███                in one tick and is read for the last time in
         c       █████          another; two that are alive at once share no slot:
slots      a=0 b=1 c=1          as few of them as are ever alive.
"""

import heapq
from typing import NamedTuple

import numpy as np

from dml.wire.pipelines import FORWARD, NOTHING, Schedule, parts, when


class Places(NamedTuple):
    """Slots by tick and stage, -1 for none; and how many slots the fullest stage needs.

    In a tick, first what arrives is put down, then the stage computes: it reads, it
    stores. All devices run one program, so all have as many slots.
    """

    arrives_forward: np.ndarray  # where the boundary from the part before is put
    input: np.ndarray  # where a forward reads it
    residual: np.ndarray  # where a forward stores, and its backward's pieces read
    arrives_backward: np.ndarray  # where the cotangent from the part after is put
    cotangent: np.ndarray  # where a backward's first piece reads it
    inputs: int
    residuals: int
    cotangents: int


def places(schedule: Schedule) -> Places:
    """Lay out what the stages keep: boundaries, residuals, cotangents.

    Part 0 has no boundary before it, and the last part's cotangent is the loss's 1: -1.
    """
    ticks = when(schedule)
    forward, backward, last = ticks[FORWARD], ticks[FORWARD + 1], ticks[-1]
    every = np.arange(parts(schedule))
    before, after = every[1:], every[:-1]  # parts that have one before them, or after

    came = forward[:, before - 1] + 1
    laid, inputs = _laid(schedule, before, came, forward[:, before])
    arrives_forward = _table(schedule, before, came, laid)
    given = _table(schedule, before, forward[:, before], laid)

    laid, residuals = _laid(schedule, every, forward, last)
    residual = _table(schedule, every, ticks, laid)

    came = last[:, after + 1] + 1
    laid, cotangents = _laid(schedule, after, came, backward[:, after])
    arrives_backward = _table(schedule, after, came, laid)
    cotangent = _table(schedule, after, backward[:, after], laid)
    return Places(
        *(arrives_forward, given, residual, arrives_backward, cotangent),
        *(inputs, residuals, cotangents),
    )


def slots(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, int]:
    """Give each interval [begin, end) a slot; return them and the fewest that do."""
    order = np.lexsort((end, begin))
    begin, end = begin[order], end[order]
    alive = np.arange(1, len(begin) + 1) - np.searchsorted(np.sort(end), begin, "right")
    count = int(alive.max(initial=0))
    # first in, first out: were the one `count` before still alive, all since were too
    if count == len(begin) or (end[1:] >= end[:-1]).all():
        found = np.arange(len(begin)) % max(count, 1)
    else:
        found = np.array(_lowest(begin.tolist(), end.tolist()))
    slot = np.empty(len(begin), np.int32)
    slot[order] = found
    return slot, count


def _lowest(begin: list[int], end: list[int]) -> list[int]:
    """Give each interval, in the order they begin, the lowest slot that is free."""
    free: list[int] = []
    alive: list[tuple[int, int]] = []
    found = []
    for first, last in zip(begin, end, strict=True):
        while alive and alive[0][0] <= first:
            heapq.heappush(free, heapq.heappop(alive)[1])
        slot = heapq.heappop(free) if free else len(alive)
        heapq.heappush(alive, (last, slot))
        found.append(slot)
    return found


def _laid(
    schedule: Schedule, which: np.ndarray, begin: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return slots for what lives from begin through last: microbatches x which."""
    laid = np.empty(begin.shape, np.int32)
    most = 0
    for stage in range(schedule.stages):
        mine = which % schedule.stages == stage
        starts, ends = begin[:, mine], last[:, mine] + 1
        slot, count = slots(starts.ravel(), ends.ravel())
        laid[:, mine] = slot.reshape(starts.shape)
        most = max(most, count)
    return laid, most


def _table(
    schedule: Schedule, which: np.ndarray, ticks: np.ndarray, laid: np.ndarray
) -> np.ndarray:
    """Write the slots into a table ticks x stages, at these ticks of these parts."""
    table = np.full(schedule.piece.shape, NOTHING, np.int32)
    table[ticks, which % schedule.stages] = laid
    return table
