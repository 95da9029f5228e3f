"""The scheduler of virtual ranks: greenlets in one thread, in virtual time.

A rank runs ahead in virtual time until it has to wait. Events whose result depends on
their order (a receive from ANY source, a shared link, a death) are put into a heap.
When no rank can run ahead, the earliest event is processed. Later events cannot change
its result (Chandy & Misra 1979), so a run is the same on every machine.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent

from dml.sim import failures
from dml.sim.process import Process, describe

MAX_FRUITLESS_POLLS = 1000  # polls by all ranks without progress; more: a deadlock


class Deadlock(RuntimeError):
    """All virtual ranks wait, or messages were sent and never received."""


class Limits(NamedTuple):
    """Limits beyond which a program is stopped."""

    seconds: float = 1e9  # of virtual time
    messages: int = 10**9  # sends and waits of one rank


class World:
    """The virtual ranks, the queues of ranks that can run, and pending events."""

    def __init__(self, size: int, network: Any, limits: Limits):
        self.network, self.limits = network, limits
        self.hub = getcurrent()
        self.starting, self.ending = True, False
        # A stack: the data of the rank added last is most likely in the CPU's cache.
        self.ready: list[Process] = []
        self.polling: deque[Process] = deque()  # resumed when none is ready
        # of `mpi.vectorised`; their ranks send messages when nothing else can happen
        self.joint_calls: list[Any] = []
        # Events: a heap ordered by time, rank and the rank's order of sends.
        self.events: list[tuple[float, int, tuple, int, Any]] = []
        self.count = 0  # number of events added so far
        self.cut: list[Any] = []  # receives whose message was longer than the buffer
        self.idle = 0  # pauses since the last progress
        self.fruitless = 0  # polls by all ranks since the last progress
        self.processes = [Process(self, rank) for rank in range(size)]
        self.shadows: list[Process] = []  # see `mpi.background`
        self.groups: list[list[Any]] = []  # the communicators of each group
        self.host: list[int] = []  # of each rank, computed at the first use
        self.links: Any = None  # RunningLinks, of a network with links or failures
        rates = network.rates
        self.rates = (
            float(rates.alpha),
            float(rates.beta),
            float(rates.gamma),
            rates.eager,
        )

    def run(self, comms: Sequence[Any], seed: int) -> None:
        """Run every rank to its end; raise `Deadlock` if no rank can continue."""
        order = list(comms)
        if seed:
            random.Random(seed).shuffle(order)
        # A greenlet inherits its starter's recursion depth: start all of them here.
        for comm in order:
            comm.process.root.switch(comm)
        self.starting = False
        while self.ready or self.polling or self.events or self.joint_calls:
            if self.ready:
                self.ready.pop().fiber.switch()
            elif self.polling:
                self.polling.popleft().fiber.switch()
            elif self.events:
                self.advance()
            else:
                self.joint_calls[-1].end()
        if any(process.waits for process in self.processes):
            raise Deadlock(self.report())
        self.check_all_received()

    def hosts(self) -> list[int]:
        """Return the host of every rank."""
        if not self.host:
            self.host = self.network.hosts(len(self.processes))
        return self.host

    def schedule(
        self,
        time: float,
        rank: int,
        what: Process | Callable[[], object],
        sent: tuple = (),
    ) -> None:
        """Add an event: resume a rank or call a function after all earlier events.

        Args:
          time: Virtual time of the event, in s.
          rank: Orders events of equal time.
          what: Rank to resume, or function to call.
          sent: Orders events of equal time and rank; grows with every send.
        """
        self.count += 1
        heappush(self.events, (time, rank, sent, self.count, what))

    def advance(self) -> None:
        """Process the earliest event."""
        time, *_, what = heappop(self.events)
        self.progress()
        if what.__class__ is not Process:
            what()
        elif time > self.limits.seconds:
            self.stop(what)
        else:
            self.ready.append(what)

    def schedule_death(self, process: Process, time: float) -> None:
        """Add the event of a rank's death, also while it waits or polls."""
        process.death = time
        process.end_time = min(time, process.end_time)

        def end() -> None:
            process.clock = max(process.clock, time)
            if process.waits:
                process.wake()

        self.schedule(time, -1, end)
        known = time + self.rates[0]
        self.schedule(known, -1, partial(failures.detect, process, known))

    def progress(self) -> None:
        """Reset the counters of polls, as the result of a poll may have changed."""
        self.idle = self.fruitless = 0

    def skip_polling(self) -> None:
        """Advance to the next event or completion; called when all ready ranks poll."""
        self.idle = 0
        due = [p for p in self.polling if p.polls and p.polls.done > p.clock]
        first = min(due, key=lambda process: process.polls.done, default=None)
        if self.events and (not first or self.events[0][0] <= first.polls.done):
            return self.advance()
        if first:
            first.clock = first.polls.done
            return self.progress()
        self.fruitless += 1
        if self.fruitless > MAX_FRUITLESS_POLLS:
            self.hub.throw(Deadlock(self.report()))

    def stop(self, process: Process) -> None:
        """Stop a program that exceeds its limits."""
        error = Deadlock(
            f"expected a program that ends within {self.limits}, got rank "
            f"{process.rank} at {process.clock:.9g} s of virtual time; correct the "
            "program, or pass higher limits"
        )
        if getcurrent() is self.hub:
            raise error
        self.hub.throw(error)

    def report(self) -> str:
        """Describe the call in which each rank waits, and the messages not received."""
        stuck = [p for p in self.processes if p.waits or p.polls]
        inside = [p for p in self.shadows if p.waits]
        lines = [
            f"  rank {p.rank} at {p.clock:.9f} s: {describe(p.waits or p.polls)}"
            for p in (*stuck, *inside)
        ]
        dead = [p for p in self.processes if p.died]
        lines[:0] = [f"  rank {p.rank} died at {p.death:.9f} s" for p in dead]
        head = f"deadlock: {len(stuck)} of {len(self.processes)} virtual ranks wait"
        lost = first_lines(self.lost(), "messages")
        return "\n".join([head, *first_lines(lines, "ranks"), *lost])

    def lost(self) -> list[str]:
        """Describe the messages that were not received."""
        lost = self.links.lost if self.links else ()
        return [f"  cannot arrive: {message.describe()}" for message in lost] + [
            f"  not received: {line}"
            for group in self.groups
            for comm in group
            if (comm.inbox or comm.any_source) and not comm.revoked
            for line in comm.unread()
        ]

    def check_all_received(self) -> None:
        """Raise `Deadlock` if messages are lost and no rank has died.

        Raise BadInput if a message was cut off and no rank has waited for it.
        """
        for request in self.cut:
            if request.active and request.error:
                raise request.error
        lost = self.lost()
        if lost and not any(process.died for process in self.processes):
            head = f"all ranks have ended, and {len(lost)} messages are lost"
            raise Deadlock("\n".join([head, *first_lines(lost, "messages")]))

    def end(self) -> None:
        """Unwind the ranks that have not ended."""
        # A rank that waits while it unwinds returns to the hub.
        self.starting = self.ending = True
        for process in (*self.processes, *self.shadows):
            for fiber in (process.root, process.fiber):
                if fiber and not fiber.dead:
                    fiber.parent = self.hub
                    fiber.throw(GreenletExit)
            process.root = process.fiber = None
        # order matters: without cycles, memory is freed now and not by the collector.
        for group in self.groups:
            group.clear()
        self.processes.clear()
        self.shadows.clear()
        self.joint_calls.clear()


def first_lines(lines: list[str], what: str, most: int = 32) -> list[str]:
    """Return the first `most` lines, then a line with the number of others."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  and {len(lines) - most} more {what}"]
