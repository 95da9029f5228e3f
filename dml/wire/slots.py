"""Instructions of a pipeline: a Schedule with slots of memory for tensors in flight.

tick       0 1 2 3 4 5 6        A message is sent at the end of a tick and occupies a
tensor a   ███████              slot from the next tick on. Tensors that are in flight
       b     ███                at the same time have different slots. There are as many
       c         █████          slots as tensors in flight at most.
slot       a=0 b=1 c=1
"""

import heapq
from typing import NamedTuple

import numpy as np

from dml.wire.pipelines import FORWARD, NEVER, Schedule


class Instructions(NamedTuple):
    """The work of all ticks and its slots: arrays ticks x stages, -1 for none.

    A stage computes first: it reads and writes slots. Then messages are sent, and put
    into slots where they arrive.
    """

    piece: np.ndarray  # these three are those of the Schedule
    microbatch: np.ndarray
    round: np.ndarray
    activations: np.ndarray  # slot of received activations that a forward reads
    saved: np.ndarray  # slot that a forward writes, and the pieces of its backward read
    gradients: np.ndarray  # slot of a received gradient that a first piece reads
    recv_activations: np.ndarray  # slot into which activations are received
    recv_gradients: np.ndarray  # slot into which a gradient is received


def slots_of(table: np.ndarray) -> int:
    """Return the number of slots of the stage with the most."""
    return int(table.max(initial=NEVER)) + 1


def instructions(schedule: Schedule) -> Instructions:
    """Return the instructions of a schedule.

    Part 0 receives no activations. The last part receives no gradient, as that of the
    loss is 1.
    """
    ticks = schedule.ticks
    forward, first, last = ticks[FORWARD], ticks[FORWARD + 1], ticks[-1]
    every = np.arange(schedule.parts)
    receivers, senders = every[1:], every[:-1]  # of activations

    sent, read = forward[:, senders], forward[:, receivers]
    slot = _slots(schedule, receivers, sent + 1, read)
    activations = _table(schedule, receivers, read, slot)
    recv_activations = _table(schedule, receivers, sent, slot)

    slot = _slots(schedule, every, forward, last)
    saved = _table(schedule, every, ticks, slot)

    sent, read = last[:, receivers], first[:, senders]
    slot = _slots(schedule, senders, sent + 1, read)
    gradients = _table(schedule, senders, read, slot)
    recv_gradients = _table(schedule, senders, sent, slot)

    work = schedule.piece, schedule.microbatch, schedule.round
    return Instructions(
        *work, activations, saved, gradients, recv_activations, recv_gradients
    )


def slots(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return a slot for each interval [begin, end); there are no more than needed."""
    order = np.lexsort((end, begin))
    begin, end = begin[order], end[order]
    ended = np.searchsorted(np.sort(end), begin, "right")
    count = int((np.arange(1, len(begin) + 1) - ended).max(initial=0))
    slot = np.empty(len(begin), np.int32)
    if (end[1:] >= end[:-1]).all():
        # first in, first out: pipedream.py needs these to repeat
        slot[order] = np.arange(len(begin)) % max(count, 1)
    else:
        slot[order] = _lowest(begin.tolist(), end.tolist())
    return slot


def _lowest(begin: list[int], end: list[int]) -> list[int]:
    """Return the lowest free slot of each interval; they are sorted by begin."""
    free: list[int] = []
    occupied: list[tuple[int, int]] = []
    found = []
    for first, last in zip(begin, end, strict=True):
        while occupied and occupied[0][0] <= first:
            heapq.heappush(free, heapq.heappop(occupied)[1])
        slot = heapq.heappop(free) if free else len(occupied)
        heapq.heappush(occupied, (last, slot))
        found.append(slot)
    return found


def _slots(
    schedule: Schedule, parts: np.ndarray, begin: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Return slots from tick begin through last; arrays microbatches x parts."""
    found = np.empty(begin.shape, np.int32)
    for stage in range(schedule.stages):
        here = parts % schedule.stages == stage
        starts, ends = begin[:, here], last[:, here] + 1
        found[:, here] = slots(starts.ravel(), ends.ravel()).reshape(starts.shape)
    return found


def _table(
    schedule: Schedule, parts: np.ndarray, ticks: np.ndarray, slot: np.ndarray
) -> np.ndarray:
    """Return an array ticks x stages with the slots at these ticks of these parts."""
    table = np.full(schedule.piece.shape, NEVER, np.int32)
    table[ticks, parts % schedule.stages] = slot
    return table
