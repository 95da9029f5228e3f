"""Plans that move buffers between the memory of a device and that of its host.

    accesses of an iteration   f0  f1  f2  b2  b1  b0   the same in every iteration
    device memory before b2    saved/1, saved/2, params/2   ≤ capacity
    evicted                    the buffer whose next use is farthest: saved/0

An iteration is recorded once: which buffers each operation reads and writes, and their
bytes. As the order repeats, the next use of each buffer is known, and Belady's rule
evicts the buffer whose next use is farthest (GeePS, Cui 2016).

For buffers of equal size Belady's rule has the fewest fetches of all plans. For unequal
sizes, or if changed buffers must be written back, a plan with the fewest bytes is
NP-hard to compute and the rule is a heuristic. A buffer that is not read before it is
written again is not moved, and a buffer that equals its copy on the host is evicted
without a copy.

The bytes that an iteration moves are those of its plan; see `prefetching` for its time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import NamedTuple

from dml.types import BadInput

FETCH, WRITE_BACK, DROP = "fetch", "write back", "drop"


class Access(NamedTuple):
    """An operation and its buffers.

    Attributes:
      name: Name of the operation.
      reads: Buffers that the operation reads.
      writes: Buffers that the operation writes; their old content is lost.
      workspace: Temporary bytes of the operation.
      seconds: Seconds of the operation.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    workspace: int = 0
    seconds: float = 0.0

    @property
    def buffers(self) -> tuple[str, ...]:
        """All buffers of the operation, without repetition."""
        return tuple(dict.fromkeys(self.reads + self.writes))


class Iteration(NamedTuple):
    """A recorded iteration, which repeats without end: bytes of buffers, accesses."""

    sizes: Mapping[str, int]
    accesses: Sequence[Access]

    def working_set(self, access: Access) -> int:
        """Return the bytes that must be in device memory during an access."""
        return access.workspace + sum(self.sizes[name] for name in access.buffers)

    @property
    def least(self) -> int:
        """Bytes of the largest working set: the smallest possible capacity."""
        return max(map(self.working_set, self.accesses))

    @property
    def most(self) -> int:
        """Bytes with which no buffer is evicted."""
        steps = demand(self, sum(self.sizes.values()) + self.least)
        return max(step.occupied for step in islice(steps, 2 * len(self.accesses)))


class Move(NamedTuple):
    """A move of a buffer.

    Attributes:
      buffer: Name of the buffer.
      kind: FETCH, WRITE_BACK, or DROP for a buffer that equals its copy on the host.
      nbytes: Bytes that are copied; 0 for DROP.
      slot: Number of the access after whose predecessor the move may start.
      deadline: Number of the access before which the move must be complete.
    """

    buffer: str
    kind: str
    nbytes: int
    slot: int
    deadline: int


class Demand(NamedTuple):
    """Moves directly before an access, and the bytes occupied during the access."""

    moves: Sequence[Move]
    occupied: int


class EvictionRule(NamedTuple):
    """A choice of buffers to evict.

    Attributes:
      rank: (accesses until the next use, accesses since the last use) -> rank; the
        buffer of the highest rank is evicted first.
      keep: Whether buffers stay until their memory is needed.
    """

    rank: Callable[[int, int], int]
    keep: bool = True


RULES = {
    "belady": EvictionRule(lambda until, since: until),
    "lru": EvictionRule(lambda until, since: since),
    "on_demand": EvictionRule(lambda until, since: since, keep=False),
}


def demand(
    iteration: Iteration,
    capacity: int,
    rule: str = "belady",
    resident: Mapping[str, bool] | None = None,
) -> Iterator[Demand]:
    """Yield the moves before each access of endless iterations, without prefetching.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      rule: Key of RULES.
      resident: Buffers in device memory at the start, with True if the buffer was
        changed since it was copied; None: no buffers.
    """
    check_capacity(iteration, capacity)
    changed, sizes = dict(resident or {}), iteration.sizes
    rank, keep = RULES[rule]
    last = dict.fromkeys(changed, -1)  # number of the last access
    following = next_uses(iteration)
    for number, access in enumerate(_cycle(iteration)):
        index, pinned = number % len(iteration.accesses), set(access.buffers)
        missing = [name for name in access.buffers if name not in changed]
        needed = access.workspace + sum(sizes[name] for name in [*missing, *changed])
        ranks = {
            name: rank(following[name][index][0], number - last[name])
            for name in changed
            if name not in pinned
        }
        # order matters: plans are equal on all ranks, so equal ranks are sorted by name
        ranked = sorted(ranks, key=lambda name: (-ranks[name], name))
        moves = []
        for name in victims(ranked, sizes, needed - capacity) if keep else ranked:
            needed -= sizes[name]
            kind = WRITE_BACK if changed.pop(name) else DROP
            nbytes = sizes[name] if kind == WRITE_BACK else 0
            moves.append(Move(name, kind, nbytes, last[name] + 1, number))
        for name in missing:
            if name in access.reads:
                moves.append(Move(name, FETCH, sizes[name], 0, number))
            changed[name] = False
        yield Demand(moves, needed)
        for name in access.buffers:
            last[name] = number
            changed[name] |= name in access.writes
            if following[name][index][1]:
                del changed[name]


def victims(ranked: Sequence[str], sizes: Mapping[str, int], excess: int) -> list[str]:
    """Return the buffers to evict for `excess` bytes.

    Buffers are taken in the order of `ranked`. If the last is so large that earlier
    ones can stay, they stay.
    """
    taken: list[str] = []
    for name in ranked:
        if excess <= 0:
            break
        taken.append(name)
        excess -= sizes[name]
    for name in reversed(taken):
        if excess + sizes[name] <= 0:
            taken.remove(name)
            excess += sizes[name]
    return taken


def _cycle(iteration: Iteration) -> Iterator[Access]:
    return chain.from_iterable(iteration.accesses for _ in count())


def check_capacity(iteration: Iteration, capacity: int) -> None:
    """Raise BadInput if an operation does not fit in the capacity."""
    largest = max(iteration.accesses, key=iteration.working_set)
    if iteration.least > capacity:
        raise BadInput(
            f"expected device memory for the operation {largest.name!r}, which needs "
            f"{iteration.least:,} bytes, got {capacity:,}; pass "
            f"--device_mb={-(-iteration.least // 1000) / 1000:.3f} or more"
        )


def next_uses(iteration: Iteration) -> dict[str, list[tuple[int, bool]]]:
    """Return, by buffer and access, the distance to the next use, and a bool.

    The bool is true if the next use writes the buffer without reading it: the content
    is then not needed after the access.
    """
    length = len(iteration.accesses)
    following: dict[str, list[tuple[int, bool]]] = {}
    for name in iteration.sizes:
        uses: list[tuple[int, bool]] = [(0, False)] * length
        later: tuple[int, bool] | None = None
        for number in reversed(range(2 * length)):
            index, access = number % length, iteration.accesses[number % length]
            if later:
                uses[index] = later[0] - number, later[1]
            if name in access.buffers:
                later = number, name not in access.reads
        following[name] = uses
    return following


def moved(moves: Iterable[Move]) -> int:
    """Return the bytes that moves copy in both directions."""
    return sum(move.nbytes for move in moves)
