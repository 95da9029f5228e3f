"""Effects of the death of a virtual rank: failed waits, revocation, agreement.

    rank 2 dies at t ─► at t + α all its communicators record the death
                        waits that need rank 2 raise RankFailed
    rank 0 revokes   ─► α later, all waits and all later operations on that
                        communicator raise RankFailed, except Agree and Shrink

The names and the rules are those of ULFM (Bland 2013). An agreement completes when all
living ranks have entered it, also on a revoked communicator; it takes 2⌈log₂ p⌉ α.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from dml.sim.process import Process
from dml.types import ANY, RankFailed
from dml.types.freed import OPERATIONS

REVOKED = tuple(name for name in OPERATIONS if name != "Free")


def detect(process: Process, time: float) -> None:
    """Report a death to all communicators of the rank; called at `time`."""
    if process.root.dead and not process.died:
        return  # its program had ended before
    for group in [*process.world.groups]:
        rank = next((c.rank for c in group if c.process is process), None)
        if rank is not None:
            shared = group[0].shared
            shared.failed.add(rank)
            for comm in group:
                recheck(comm, time)
            for agreement in [*shared.agreements.values()]:
                agreement.complete(time)


def recheck(comm: Any, time: float) -> None:
    """End the wait of a rank at `time` if it can no longer complete."""
    process = comm.process
    waits = process.waits
    if waits.__class__ is tuple:  # a blocking receive without a request
        reason = revoked_text(comm) if comm.is_blocked and comm.revoked else ""
    else:
        reason = waits.failure(comm) if waits else ""
    if reason:
        process.clock = max(process.clock, time)
        comm.forget_blocked()
        process.interrupt(RankFailed(reason))


def request_failure(request: Any) -> str:
    """Return why an incomplete request cannot complete; "" if it can."""
    comm = request.comm
    if request.done >= 0:
        return ""
    if comm.revoked:
        return revoked_text(comm)
    failed = comm.shared.failed
    if request.peer == ANY:
        return any_failure(comm)
    if request.peer in failed and not (request.matched and not request.lost):
        return failed_text(comm, [request.peer], request.describe())
    return ""


def any_failure(comm: Any) -> str:
    """Return why a receive from ANY fails: a death that is not acknowledged.

    On a communicator without `Ack_failed` it never fails.
    """
    if comm.acknowledged is None:
        return ""
    new = comm.shared.failed - comm.acknowledged
    return failed_text(comm, sorted(new), "a receive from ANY") if new else ""


def collective_failure(comm: Any, entered: Sequence[int]) -> str:
    """Return why a collective call cannot complete; "" if it can.

    Args:
      comm: Communicator of one rank.
      entered: World ranks that have entered the call.
    """
    if comm.revoked:
        return revoked_text(comm)
    missing = [
        rank
        for rank in sorted(comm.shared.failed)
        if comm.peers[rank].process.rank not in entered
    ]
    return failed_text(comm, missing, "a collective call") if missing else ""


def failed_text(comm: Any, ranks: list[int], what: str) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {comm.rank}: rank {names} has died, in {what}"


def revoked_text(comm: Any) -> str:
    return f"rank {comm.rank}: the communicator was revoked"


@cache
def revoked(kind: Any) -> Any:
    """Return a subclass of a communicator's class whose operations raise RankFailed."""

    def refuse(comm: Any, *arguments: Any, **options: Any) -> None:
        raise RankFailed(revoked_text(comm))

    operations = dict.fromkeys(REVOKED, refuse)
    fields = {"__slots__": (), "revoked": True, **operations}
    return type(f"Revoked{kind.__name__}", (kind,), fields)


def unrevoked(kind: Any) -> Any:
    """Return the class of a communicator before it was revoked."""
    return kind.__base__ if kind.revoked else kind


def revoke(comm: Any) -> None:
    """Revoke a communicator and all that were split from it; α later on other ranks."""
    process, world = comm.process, comm.process.world
    close(comm)
    time = process.clock + comm.alpha
    world.progress()
    world.schedule(time, process.rank, partial(spread, comm.peers, time))


def spread(group: list[Any], time: float) -> None:
    """Revoke a group on all its ranks, and the groups split from it."""
    for comm in group:
        close(comm)
        recheck(comm, time)
    for child in group[0].shared.children if group else ():
        spread(child, time)


def close(comm: Any) -> None:
    if not comm.revoked:
        comm.__class__ = revoked(type(comm))  # type: ignore[arg-type]


class Agreement:
    """A call of Agree or Shrink in progress."""

    def __init__(self, comm: Any, number: int, combine: Callable[[dict], Any]):
        self.comm, self.number, self.combine = comm, number, combine
        self.values: dict[int, Any] = {}  # by rank
        self.done, self.result = -1.0, None

    def describe(self) -> str:
        return f"an agreement, entered by {len(self.values)} of {self.comm.size} ranks"

    def failure(self, comm: Any) -> str:
        return ""  # deaths do not end an agreement

    def complete(self, time: float) -> None:
        """Complete at `time` or later if all living ranks have entered."""
        comm, shared = self.comm, self.comm.shared
        if len(shared.failed.union(self.values)) < comm.size:
            return
        del shared.agreements[self.number]
        clocks = [comm.peers[rank].process.clock for rank in self.values]
        rounds = 2 * (comm.size - 1).bit_length()
        self.done = max(time, *clocks) + rounds * comm.alpha
        self.result = self.combine(self.values)
        for rank in sorted(self.values, reverse=True):
            if comm.peers[rank].process.waits is self:
                comm.peers[rank].process.wake()


def agree(comm: Any, value: Any, combine: Callable[[dict], Any]) -> Any:
    """Return combine(values by rank) of all ranks that live; equal on all of them."""
    process, shared = comm.process, comm.shared
    if process.clock >= process.end_time:
        process.end()
    comm.agreements += 1
    number = comm.agreements
    agreement = shared.agreements.setdefault(number, Agreement(comm, number, combine))
    process.world.progress()
    agreement.values[comm.rank] = value
    agreement.complete(process.clock)
    if agreement.done < 0:
        process.wait(agreement)
    process.clock = max(process.clock, agreement.done)
    return agreement.result
