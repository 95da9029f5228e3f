"""Instructions of a pipeline: a Schedule, with memory slots for tensors in flight.

tick       0 1 2 3 4 5 6        A message is sent at the end of a tick and occupies a
tensor a   ███████              slot from the next tick on. Tensors that are in flight
       b     ███                at the same time have different slots. The number of
       c         █████          slots is the greatest number of tensors in flight.
slot       a=0 b=1 c=1
"""

import heapq
from collections import deque
from typing import NamedTuple

import numpy as np

from dml.wire.plans.pipelines import FORWARD, NEVER, Schedule


class Instructions(NamedTuple):
    """The work of all ticks, and its slots: arrays ticks x stages, -1 for none.

    In each tick a stage first computes, reading and writing its own slots. Then
    messages are sent, and written to slots of the receivers.
    """

    piece: np.ndarray  # as in the Schedule
    microbatch: np.ndarray  # as in the Schedule
    round: np.ndarray  # as in the Schedule
    saved: np.ndarray  # slot that a forward writes and its backward pieces read
    activations: np.ndarray  # slot of received activations that a forward reads
    recv_activations: np.ndarray  # slot into which activations are received
    gradients: np.ndarray  # slot of a received gradient, read by the first piece
    recv_gradients: np.ndarray  # slot into which a gradient is received


def slot_count(table: np.ndarray) -> int:
    """Return the number of slots in a table of slots, the largest over all stages."""
    return int(table.max(initial=NEVER)) + 1


def instructions(schedule: Schedule) -> Instructions:
    """Return the instructions of a schedule.

    Part 0 receives no activations. The last part receives no gradient: the gradient of
    the loss is 1.
    """
    ticks, parts = schedule.ticks, np.arange(schedule.parts)
    forward, first, last = ticks[FORWARD], ticks[FORWARD + 1], ticks[-1]

    def tables(
        parts: np.ndarray, begin: np.ndarray, end: np.ndarray, *used: np.ndarray
    ) -> list[np.ndarray]:
        """Assign slots that are occupied in the ticks [begin, end).

        Return a table for each array of ticks in `used`, with the slot that a part uses
        in that tick. All arguments but the parts are arrays microbatches x parts.
        """
        stages, slot = parts % schedule.stages, np.empty(begin.shape, np.int32)
        for stage in range(schedule.stages):
            columns = np.nonzero(stages == stage)[0]
            assigned = assign_slots(begin[:, columns].ravel(), end[:, columns].ravel())
            slot[:, columns] = assigned.reshape(len(begin), -1)
        written = [np.full(schedule.piece.shape, NEVER, np.int32) for _ in used]
        for table, ticks in zip(written, used, strict=True):
            table[ticks, stages] = slot
        return written

    def messages(
        receivers: np.ndarray, sent: np.ndarray, read: np.ndarray
    ) -> list[np.ndarray]:
        """Return the table of slots to read, and of slots to receive into."""
        return tables(receivers, sent + 1, read + 1, read, sent)

    return Instructions(
        schedule.piece,
        schedule.microbatch,
        schedule.round,
        *tables(parts, forward, last + 1, ticks),
        *messages(parts[1:], forward[:, :-1], forward[:, 1:]),
        *messages(parts[:-1], last[:, 1:], first[:, :-1]),
    )


def assign_slots(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return a slot for each interval [begin, end); the number of slots is minimal.

    Slots are used cyclically: if intervals end in the order in which they begin,
    interval m has slot m % n of n slots.
    """
    ended = np.searchsorted(np.sort(end), np.sort(begin), "right")
    count = int((np.arange(1, len(begin) + 1) - ended).max(initial=0))
    free = deque(range(count))
    occupied = list[tuple[int, int]]()  # a heap of (end, slot)
    slot = np.empty(len(begin), np.int32)
    for interval in np.lexsort((end, begin)).tolist():
        while occupied and occupied[0][0] <= begin[interval]:
            free.append(heapq.heappop(occupied)[1])
        slot[interval] = free.popleft()
        heapq.heappush(occupied, (int(end[interval]), int(slot[interval])))
    return slot
