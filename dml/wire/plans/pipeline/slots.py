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

from dml.wire.plans.pipeline.schedules import FORWARD, NEVER, Schedule

DIRECTIONS = (1, -1, 0)  # stages from the sender of a message to its receiver


class Instructions(NamedTuple):
    """The work of all ticks, and its slots: arrays ticks x stages, -1 for none.

    In each tick a stage first computes, reading and writing its own slots. Then
    messages are sent, and written to slots of the receivers. The tables of received
    messages are arrays ticks x stages x directions, as in a V a stage may receive from
    both of its neighbours in a tick.
    """

    piece: np.ndarray  # as in the Schedule
    microbatch: np.ndarray  # as in the Schedule
    round: np.ndarray  # as in the Schedule
    saved: np.ndarray  # slot that a forward writes and its backward pieces read
    activations: np.ndarray  # slot of received activations that a forward reads
    recv_activations: np.ndarray  # slot into which activations are received
    gradients: np.ndarray  # slot of a received gradient, read by the first piece
    recv_gradients: np.ndarray  # slot into which a gradient is received
    # slot in which an input gradient leaves what its weight gradient reads
    deferred: np.ndarray


def slot_count(table: np.ndarray) -> int:
    """Return the number of slots in a table of slots, the largest over all stages."""
    return int(table.max(initial=NEVER)) + 1


def directions_of(received: np.ndarray) -> list[int]:
    """Return the indices in DIRECTIONS that a table of received messages uses."""
    return [n for n in range(len(DIRECTIONS)) if (received[..., n] >= 0).any()]


def instructions(schedule: Schedule) -> Instructions:
    """Return the instructions of a schedule.

    Part 0 receives no activations. The last part receives no gradient: the gradient of
    the loss is 1.
    """
    ticks, parts = schedule.ticks, np.arange(schedule.parts)
    forward, first, last = ticks[FORWARD], ticks[FORWARD + 1], ticks[-1]
    sent_gradients = ticks[schedule.sending_piece]
    stage_of, hops = schedule.stage_of, schedule.hops

    def assign(parts: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return slots that are occupied in the ticks [begin, end).

        All arrays but the parts have the shape microbatches x parts.
        """
        slot = np.empty(begin.shape, np.int32)
        for stage in range(schedule.stages):
            columns = np.nonzero(stage_of[parts] == stage)[0]
            assigned = assign_slots(begin[:, columns].ravel(), end[:, columns].ravel())
            slot[:, columns] = assigned.reshape(len(begin), -1)
        return slot

    def table(parts: np.ndarray, slot: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Return a table with the slot that each part uses in these ticks."""
        written = np.full(schedule.piece.shape, NEVER, np.int32)
        written[used, stage_of[parts]] = slot
        return written

    def messages(
        receivers: np.ndarray, sent: np.ndarray, read: np.ndarray, hops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the table of slots to read, and of slots to receive into."""
        slot = assign(receivers, sent + 1, read + 1)
        received = [
            table(receivers[to], slot[:, to], sent[:, to])
            for to in (hops == direction for direction in DIRECTIONS)
        ]
        return table(receivers, slot, read), np.stack(received, axis=-1)

    deferred = np.full(schedule.piece.shape, NEVER, np.int32)
    if schedule.split:
        slot = assign(parts, first, last + 1)
        deferred = table(parts, slot, ticks[FORWARD + 1 :])
    backward_messages = messages(
        parts[:-1], sent_gradients[:, 1:], first[:, :-1], -hops
    )
    return Instructions(
        schedule.piece,
        schedule.microbatch,
        schedule.round,
        table(parts, assign(parts, forward, last + 1), ticks),
        *messages(parts[1:], forward[:, :-1], forward[:, 1:], hops),
        *backward_messages,
        deferred,
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
