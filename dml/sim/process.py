"""A virtual rank: a clock, two ports, and a greenlet that gives way when it waits."""

from typing import Any

from greenlet import GreenletExit, getcurrent

from dml.types import ANY


class Process:
    """One virtual rank: its clock, its two ports, its thread of control."""

    __slots__ = (
        *("asked", "clock", "died", "dies", "ends", "fiber", "in_free", "left"),
        *("made", "met_free", "offers", "open", "out_free", "polls", "rank", "root"),
        *("settled", "waits", "world"),
    )

    def __init__(self, world: Any, rank: int):
        self.world, self.rank = world, rank
        self.clock = self.out_free = self.in_free = self.met_free = 0.0
        self.root: Any = None  # the fiber of its program
        self.fiber: Any = None  # the one to go on with: root, or one that root began
        self.waits: Any = None  # what it waits for, with describe()
        self.polls: Any = None  # what it asks for again and again, likewise
        self.asked = False  # in vain, since its clock last advanced
        self.settled = -1.0  # until when all has happened that can
        self.made = 0  # communicators and windows
        self.left = world.limits.messages  # that it may send, or wait for
        self.open = self.offers = 0  # receives posted, and sends that wait for one
        self.dies, self.died = float("inf"), False
        self.ends = world.limits.seconds  # or when it dies, if that is before

    def wait(self, what: Any) -> None:
        """Let others run until one of them has called `wake`."""
        self.waits = what
        self.switch()

    def wake(self) -> None:
        self.waits = None
        self.world.ready.append(self)

    def order(self, time: float) -> None:
        """Let all that happens before `time` happen first."""
        world, self.settled = self.world, time
        others = world.ready or world.polling or world.starting
        if others or (world.later and world.later[0][0] <= time):
            world.at(time, self.rank, self)
            self.switch()

    def pause(self) -> None:
        """Let the others that can run go first."""
        world = self.world
        world.polling.append(self)
        world.idle += 1
        if world.idle > len(world.polling) and not (world.ready or world.starting):
            world.let_time_pass()
        self.switch()

    def switch(self) -> None:
        self.fiber = getcurrent()
        self.left -= 1
        world = self.world
        if world.ready and not world.ending:
            world.ready.pop().fiber.switch()
        elif world.polling and not world.starting:
            world.polling.popleft().fiber.switch()
        else:
            world.hub.switch()
        if self.clock >= self.ends or self.left < 0:
            self.end()

    def compute(self, seconds: float, unless: Any = None) -> bool:
        """Let the clock advance, and others act before then if this rank polls.

        Stop when a request is done before that; say whether the time passed.
        """
        end = self.clock + float(seconds)  # numpy's own would spread, and are slow
        if unless is not None and unless.done < 0:
            what = unless.alone()
            self.world.at(end, self.rank, lambda: self.ring(what))
            self.wait(what)
        passed = unless is None or not 0 <= unless.done < end
        if not passed:
            end = max(self.clock, unless.done)
        self.world.progress()
        self.clock = end
        if self.asked and self.clock < self.ends:
            self.asked = False
            self.order(self.clock)
        if self.clock >= self.ends:
            self.end()
        return passed

    def ring(self, what: Any) -> None:
        """Wake this rank if that is what it waits for, though it is not done."""
        if self.waits is what:
            self.wake()

    def end(self) -> None:
        """Die, if that is its fate, or end a program that never ends."""
        if self.clock < self.dies:
            self.world.stop(self)
        self.died, self.clock = True, self.dies
        raise GreenletExit


def described(call: Any) -> str:
    """Say what a rank waits for: an object that can tell, or a call's arguments."""
    if call.__class__ is not tuple:
        return call.describe()
    name, buffer, peer, tag = call
    return f"{name}={label(peer)}, tag={label(tag)}, {buffer.nbytes} bytes)"


def mail(nbytes: int, tag: int, source: int, dest: int) -> str:
    """Say what a message is that nobody has received."""
    return f"{nbytes} bytes, tag={label(tag)}, from rank {source} to rank {dest}"


def label(number: int) -> str:
    """Name a peer or a tag as the caller does."""
    return "ANY" if number == ANY else getattr(number, "name", str(number))
