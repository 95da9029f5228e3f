"""Plans of moves that start before their deadlines, and the time of an iteration.

    compute lane   f0  f1  f2  b2  b1  b0
    copy lane       ┌ fetch ┐  evict  fetch     in order, each as early as possible

A fetch starts when there is memory for its buffer during all accesses up to its own.
The time of an iteration is max(compute, bytes / bandwidth) if all moves start early
enough, which needs free memory, and the sum of both if no move overlaps.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from dml.wire.plans.offloading.offload import FETCH, Iteration, Move, demand


def plans(
    iteration: Iteration,
    capacity: int,
    rule: str = "belady",
    resident: Mapping[str, bool] | None = None,
    prefetch: bool = True,
    reserve: int = 0,
) -> Iterator[Sequence[Move]]:
    """Yield the moves of each of endless iterations, in the order of the copy lane.

    Accesses are numbered from the first iteration on. A move may belong to an access of
    the next iteration.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      rule: Key of RULES.
      resident: Buffers in device memory at the start; see `demand`.
      prefetch: Whether moves start as early as possible, at most an iteration earlier;
        otherwise directly before the access that needs them.
      reserve: Bytes of the capacity for buffers that are fetched early. Belady's rule
        may evict the buffer that was used last, so that without a reserve a fetch into
        its memory cannot start before the access that needs it.
    """
    length = len(iteration.accesses)
    steps = demand(iteration, capacity - reserve, rule, resident)
    occupied: dict[int, int] = {}  # bytes by number of the access
    waiting: deque[Move] = deque()
    earliest = planned = 0
    for start in count(0, length):
        earliest = max(earliest, start)
        while planned < start + 2 * length:
            step = next(steps)
            occupied[planned] = step.occupied
            moves = [move._replace(slot=move.deadline) for move in step.moves]
            if prefetch and moves:
                bounds = earliest, capacity
                moves, occupied = place(step.moves, bounds, occupied, iteration.sizes)
                earliest = moves[-1].slot
            waiting.extend(moves)
            planned += 1
        taken = []
        while waiting and waiting[0].slot < start + length:
            taken.append(waiting.popleft())
        yield taken
        for number in range(start, start + length):
            del occupied[number]


def place(
    moves: Sequence[Move],
    bounds: tuple[int, int],
    occupied: dict[int, int],
    sizes: Mapping[str, int],
) -> tuple[list[Move], dict[int, int]]:
    """Return the moves before an access with their earliest slots, and occupied bytes.

    Evictions come first, unless there is memory for the fetches before them: then a
    fetch need not wait for the last use of a buffer.

    Args:
      moves: Moves with one deadline.
      bounds: Slot of the previous move, and bytes of device memory.
      occupied: Bytes by number of the access.
      sizes: Bytes of buffers.
    """
    orders = []
    for first in (False, True):  # whether fetches come first
        placed, trial, (earliest, capacity) = [], dict(occupied), bounds
        for move in sorted(moves, key=lambda move: (move.kind == FETCH) != first):
            placed.append(hoist(move, earliest, trial, capacity, sizes))
            earliest = placed[-1].slot
        fetches = [move for move in placed if move.kind == FETCH]
        # order matters: a fetch directly before its access needs the evicted memory
        if not first or all(move.slot < move.deadline for move in fetches):
            orders.append((sum(move.slot for move in fetches), placed, trial))
    _, placed, trial = min(orders, key=lambda each: each[0])
    return placed, trial


def hoist(
    move: Move,
    earliest: int,
    occupied: dict[int, int],
    capacity: int,
    sizes: Mapping[str, int],
) -> Move:
    """Return the move with its earliest slot, and change the occupied bytes by it.

    Args:
      move: A move that starts at its deadline; the slot of an eviction is the first
        access after the last use.
      earliest: Slot of the previous move, as moves are made in order.
      occupied: Bytes by number of the access.
      capacity: Bytes of device memory.
      sizes: Bytes of buffers.
    """
    size = sizes[move.buffer]
    slot = move.deadline
    if move.kind == FETCH:
        while slot > earliest and occupied[slot - 1] + size <= capacity:
            slot -= 1
            occupied[slot] += size
    else:
        first = min(slot, max(earliest, move.slot))
        while slot > first:
            slot -= 1
            occupied[slot] -= size
    return move._replace(slot=slot)


def timeline(
    iteration: Iteration,
    planned: Sequence[Sequence[Move]],
    bandwidth: float,
) -> list[float]:
    """Return the time at the end of each iteration, of one compute and one copy lane.

    Args:
      iteration: The recorded iteration, with seconds.
      planned: Moves of each iteration; see `plans`.
      bandwidth: Bytes per second of the copy lane.
    """
    ends = []
    lane = clock = 0.0  # time at which each lane is free
    number, under_way = 0, deque[tuple[int, float]]()  # deadline, end
    for moves in planned:
        waiting = deque(moves)
        for access in iteration.accesses:
            while waiting and waiting[0].slot <= number:
                move = waiting.popleft()
                lane = max(lane, clock) + move.nbytes / bandwidth
                under_way.append((move.deadline, lane))
            while under_way and under_way[0][0] <= number:
                clock = max(clock, under_way.popleft()[1])
            clock += access.seconds
            number += 1
        ends.append(clock)
    return ends
