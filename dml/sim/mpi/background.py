"""Non-blocking collective calls: the blocking algorithm on a shadow of each rank.

    rank 0   ──Iallreduce──── computes ────────Wait──►
    shadow       └─ messages of the algorithm ─┘ clock of the request

A shadow has the clock of the call, and separate ports. The k-th non-blocking call of
a communicator uses one group of shadows on all ranks; groups are used again.
"""

from contextvars import copy_context
from typing import Any

from greenlet import GreenletExit, greenlet

from dml.sim.process import Process
from dml.sim.transfer import VirtualRequest
from dml.types import ANY, PROC_NULL


class Slot:
    """Shadows of all ranks of a communicator, for one call at a time."""

    def __init__(self, comm: Any):
        world = comm.process.world
        shadows = [Process(world, peer.process.rank) for peer in comm.peers]
        self.comms = type(comm).group(shadows)
        world.shadows += shadows
        self.running = 0  # ranks that have not ended the call


class Slots:
    """The slots of one communicator, shared by its ranks."""

    def __init__(self) -> None:
        self.free: list[Slot] = []
        self.calls: dict[int, Slot] = {}  # by number of the call

    def take(self, number: int, comm: Any) -> Slot:
        """Return the slot of a call; the first rank that enters it selects one."""
        slot = self.calls.get(number)
        if slot is None:
            slot = self.free.pop() if self.free else Slot(comm)
            slot.running = comm.size
            self.calls[number] = slot
        return slot

    def end(self, number: int) -> None:
        slot = self.calls[number]
        slot.running -= 1
        if not slot.running:
            del self.calls[number]
            self.free.append(slot)


class ShadowRequest(VirtualRequest):
    """The request of a call that a shadow runs."""

    __slots__ = ("what",)

    def __init__(self, comm: Any, what: str):
        super().__init__(comm, what, None, PROC_NULL, ANY)
        self.what = what

    def describe(self) -> str:
        return f"{self.what}()"


def start(comm: Any, what: str, number: int, body: Any) -> ShadowRequest:
    """Run body(comm of the shadow) in the background; return its request."""
    process = comm.process
    slots = comm.shared.results.setdefault("slots", Slots())
    slot = slots.take(number, comm)
    inner = slot.comms[comm.rank]
    shadow = inner.process
    request = ShadowRequest(comm, what)
    shadow.clock = shadow.out_free = shadow.in_free = process.clock
    shadow.rendezvous_free = process.clock

    def run() -> None:
        try:
            body(inner)
        except GreenletExit:
            return
        except Exception as reason:
            request.error = reason  # type: ignore[assignment]
        slots.end(number)
        request.finish(max(shadow.clock, shadow.out_free))

    shadow.root = shadow.fiber = greenlet(run, process.world.hub)
    shadow.root.gr_context = copy_context()
    process.world.ready.append(shadow)
    return request
