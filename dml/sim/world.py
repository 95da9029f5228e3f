"""A virtual world: ranks are greenlets in one thread, time is virtual.

A program for one rank comes in, the ranks' results go out. Ranks run in a fixed order,
each until it has to wait; the run is the same on every machine.
"""

import random
from collections import deque
from typing import Any

from greenlet import GreenletExit, getcurrent

from dml.sim.networks.uniform import Uniform

PATIENCE = 1000  # times that all ranks poll in vain before that is a deadlock


class Deadlock(RuntimeError):
    """No virtual rank can go on."""


class Process:
    """One virtual rank: its clock, its two ports, its thread of control."""

    __slots__ = (
        *("clock", "fiber", "in_free", "met_free", "out_free", "polls"),
        *("rank", "root", "waits", "world"),
    )

    def __init__(self, world: "World", rank: int):
        self.world, self.rank = world, rank
        self.clock = self.out_free = self.in_free = self.met_free = 0.0
        self.root: Any = None  # the fiber of its program
        self.fiber: Any = None  # the one to go on with: root, or one that root began
        self.waits: Any = None  # what it waits for, with describe()
        self.polls: Any = None  # what it asks for again and again, likewise

    def wait(self, what: Any) -> None:
        """Let others run until one of them has called `wake`."""
        self.waits = what
        self.switch()

    def wake(self) -> None:
        self.waits = None
        self.world.ready.append(self)

    def pause(self) -> None:
        """Let the others that can run go first."""
        world = self.world
        world.ready.append(self)
        world.idle += 1
        if world.idle > len(world.ready) and not world.starting:
            world.let_time_pass()
        self.switch()

    def switch(self) -> None:
        self.fiber = getcurrent()
        world = self.world
        if world.ready and not world.starting:
            world.ready.popleft().fiber.switch()
        else:
            world.hub.switch()


class World:
    """All virtual ranks and who of them can run."""

    def __init__(self, size: int, network: Uniform):
        self.network = network
        self.hub = getcurrent()
        self.starting = True
        self.ready: deque[Process] = deque()
        self.idle = 0  # pauses since anything but polling happened
        self.vain = 0  # times that all have polled since then, and nothing was due
        self.processes = [Process(self, rank) for rank in range(size)]

    def play(self, seed: int) -> None:
        """Run every rank to its end; raise `Deadlock` when none can go on."""
        order = list(self.processes)
        if seed:
            random.Random(seed).shuffle(order)
        # A greenlet inherits the recursion depth of whoever starts it: start all here.
        for process in order:
            process.root.switch()
        self.starting = False
        while self.ready:
            self.ready.popleft().fiber.switch()
        if any(process.waits for process in self.processes):
            raise Deadlock(self.report())

    def progress(self) -> None:
        """Something has happened that a rank may have polled for."""
        self.idle = self.vain = 0

    def let_time_pass(self) -> None:
        """All that can run only poll: go on to the first thing that comes true."""
        self.idle = 0
        due = [p for p in self.ready if p.polls and p.polls.done > p.clock]
        if due:
            first = min(due, key=lambda process: process.polls.done)
            first.clock = first.polls.done
            return self.progress()
        self.vain += 1
        if self.vain > PATIENCE:
            self.hub.throw(Deadlock(self.report()))

    def report(self, most: int = 32) -> str:
        stuck = [p for p in self.processes if p.waits or p.polls]
        lines = [
            f"  rank {p.rank} at {p.clock:.9f} s: {(p.waits or p.polls).describe()}"
            for p in stuck
        ]
        if len(lines) > most:
            lines[most:] = [f"  and {len(lines) - most} more ranks"]
        head = f"deadlock: {len(stuck)} of {len(self.processes)} virtual ranks wait"
        return "\n".join([head, *lines])

    def end(self) -> None:
        """Unwind the ranks that have not come to their end."""
        self.starting = True  # a rank that waits while it unwinds returns to the hub
        for process in self.processes:
            for fiber in (process.root, process.fiber):
                if fiber and not fiber.dead:
                    fiber.parent = self.hub
                    fiber.throw(GreenletExit)
