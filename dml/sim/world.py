"""A virtual world: ranks are greenlets in one thread, time is virtual.

A program for one rank comes in, the ranks' results go out. A rank runs ahead in virtual
time until it has to wait. What depends on who comes first (a receive from anyone, a
shared link, a death) is put off: when no rank can run ahead any more, the earliest of
these happens. So nothing that comes later can change it (Chandy & Misra 1979), and the
run is the same on every machine.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent

from dml.sim.process import Process, described

PATIENCE = 1000  # times that all ranks poll in vain before that is a deadlock


class Deadlock(RuntimeError):
    """No virtual rank can go on, or messages are left that nobody received."""


class Limits(NamedTuple):
    """What ends a program that does not end by itself."""

    seconds: float = 1e9  # of virtual time
    messages: int = 10**9  # that one rank sends, or waits for


class World:
    """All virtual ranks, and who of them can run."""

    def __init__(self, size: int, network: Any, limits: Limits):
        self.network, self.limits = network, limits
        self.hub = getcurrent()
        self.starting, self.ending = True, False
        self.ready: list[Process] = []  # the last one goes on first: it is still warm
        self.polling: deque[Process] = deque()  # go on when none is ready
        # a heap, by time, rank and what the rank sent first
        self.later: list[tuple[float, int, tuple, int, Any]] = []
        self.count = 0  # of what was put off
        self.idle = 0  # pauses since anything but polling happened
        self.vain = 0  # times that all have polled since then, and nothing was due
        self.processes = [Process(self, rank) for rank in range(size)]
        self.groups: list[list[Any]] = []  # the communicators of each group
        self.host: list[int] = []
        self.links: Any = None  # of a network that has any, or trouble
        rates = network.rates
        self.rates = (
            *(float(rates.alpha), float(rates.beta), float(rates.gamma)),
            rates.eager,
        )

    def play(self, comms: Sequence[Any], seed: int) -> None:
        """Run every rank to its end; raise `Deadlock` when none can go on."""
        order = list(comms)
        if seed:
            random.Random(seed).shuffle(order)
        # A greenlet inherits the recursion depth of whoever starts it: start all here.
        for comm in order:
            comm.process.root.switch(comm)
        self.starting = False
        while self.ready or self.polling or self.later:
            if self.ready:
                self.ready.pop().fiber.switch()
            elif self.polling:
                self.polling.popleft().fiber.switch()
            else:
                self.advance()
        if any(process.waits for process in self.processes):
            raise Deadlock(self.report())
        self.nothing_is_left()

    def hosts(self) -> list[int]:
        """The host of every rank."""
        if not self.host:
            self.host = self.network.hosts(len(self.processes))
        return self.host

    def at(
        self,
        time: float,
        rank: int,
        what: Process | Callable[[], object],
        sent: tuple = (),
    ) -> None:
        """Put off: go on with a rank, or call, when all before has happened."""
        self.count += 1
        heappush(self.later, (time, rank, sent, self.count, what))

    def advance(self) -> None:
        """Let the earliest of what was put off happen."""
        time, *_, what = heappop(self.later)
        self.progress()
        if what.__class__ is not Process:
            what()
        elif time > self.limits.seconds:
            self.stop(what)
        else:
            self.ready.append(what)

    def doom(self, process: Process, time: float) -> None:
        """Let a rank die then, also while it waits or polls."""
        process.dies = time
        process.ends = min(time, process.ends)

        def end() -> None:
            process.clock = max(process.clock, time)
            if process.waits:
                process.wake()

        self.at(time, -1, end)

    def progress(self) -> None:
        """Something has happened that a rank may have polled for."""
        self.idle = self.vain = 0

    def let_time_pass(self) -> None:
        """All that can run only poll: go on to the first thing that comes true."""
        self.idle = 0
        due = [p for p in self.polling if p.polls and p.polls.done > p.clock]
        first = min(due, key=lambda process: process.polls.done, default=None)
        if self.later and (not first or self.later[0][0] <= first.polls.done):
            return self.advance()
        if first:
            first.clock = first.polls.done
            return self.progress()
        self.vain += 1
        if self.vain > PATIENCE:
            self.hub.throw(Deadlock(self.report()))

    def stop(self, process: Process) -> None:
        """End a program that does not end by itself."""
        error = Deadlock(
            f"expected a program that ends within {self.limits}, got rank "
            f"{process.rank} at {process.clock:.9g} s of virtual time; correct the "
            "program, or pass higher limits"
        )
        if getcurrent() is self.hub:
            raise error
        self.hub.throw(error)

    def report(self) -> str:
        """Say what each rank waits for, and which messages wait for a rank."""
        stuck = [p for p in self.processes if p.waits or p.polls]
        lines = [
            f"  rank {p.rank} at {p.clock:.9f} s: {described(p.waits or p.polls)}"
            for p in stuck
        ]
        dead = [p for p in self.processes if p.died]
        lines[:0] = [f"  rank {p.rank} died at {p.dies:.9f} s" for p in dead]
        head = f"deadlock: {len(stuck)} of {len(self.processes)} virtual ranks wait"
        return "\n".join([head, *some(lines, "ranks"), *some(self.lost(), "messages")])

    def lost(self) -> list[str]:
        """Describe the messages that nobody received."""
        lost = self.links.lost if self.links else ()
        return [f"  nobody can receive {each.describe()}" for each in lost] + [
            f"  nobody received {line}"
            for group in self.groups
            for comm in group
            if comm.inbox or comm.crowd
            for line in comm.unread()
        ]

    def nothing_is_left(self) -> None:
        lost = self.lost()
        if lost and not any(process.died for process in self.processes):
            head = f"all ranks have ended, and {len(lost)} messages are lost"
            raise Deadlock("\n".join([head, *some(lost, "messages")]))

    def end(self) -> None:
        """Unwind the ranks that have not come to their end."""
        # a rank that waits while it unwinds returns to the hub
        self.starting = self.ending = True
        for process in self.processes:
            for fiber in (process.root, process.fiber):
                if fiber and not fiber.dead:
                    fiber.parent = self.hub
                    fiber.throw(GreenletExit)
        # order matters: without cycles the memory is free at once, without a collector
        for group in self.groups:
            group.clear()
        self.processes.clear()


def some(lines: list[str], what: str, most: int = 32) -> list[str]:
    """Return the first lines, and how many more there are."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  and {len(lines) - most} more {what}"]
