"""A virtual rank: a clock, two ports, and a greenlet that switches when it waits."""

from typing import Any

from greenlet import GreenletExit, getcurrent

from dml.types import ANY


class Process:
    """One virtual rank: its clock, its ports and its greenlet; all times in seconds."""

    __slots__ = (
        *("asked", "clock", "died", "dies", "ends", "fiber", "in_free", "left"),
        *("made", "met_free", "offers", "open", "out_free", "polls", "rank", "root"),
        *("settled", "waits", "world"),
    )

    def __init__(self, world: Any, rank: int):
        self.world, self.rank = world, rank
        self.clock = self.out_free = self.in_free = self.met_free = 0.0
        self.root: Any = None  # greenlet of the program
        self.fiber: Any = None  # greenlet to resume: root, or one that root started
        self.waits: Any = None  # call or object that it waits for (see `described`)
        self.polls: Any = None  # object that it polls, with `done` and `describe()`
        self.asked = False  # polled without success since its clock last advanced
        self.settled = -1.0  # all events up to this time have been processed
        self.made = 0  # number of communicators and windows that it created
        self.left = world.limits.messages  # messages and waits left
        self.open = self.offers = 0  # receives posted; sends waiting for a receive
        self.dies, self.died = float("inf"), False
        self.ends = world.limits.seconds  # time limit, or its death if earlier

    def wait(self, what: Any) -> None:
        """Suspend this rank until another calls `wake`."""
        self.waits = what
        self.switch()

    def wake(self) -> None:
        self.waits = None
        self.world.ready.append(self)

    def order(self, time: float) -> None:
        """Suspend this rank until all events before `time` are processed."""
        world, self.settled = self.world, time
        others = world.ready or world.polling or world.starting
        if others or (world.later and world.later[0][0] <= time):
            world.at(time, self.rank, self)
            self.switch()

    def pause(self) -> None:
        """Yield to the other ranks that can run; used while polling."""
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
        """Advance the clock, unless a request completes earlier.

        If this rank polled, events before the new time are processed first. Return
        whether all the seconds passed.
        """
        end = self.clock + float(seconds)  # NumPy floats would spread, and are slow
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
        """Wake this rank if it still waits for `what`."""
        if self.waits is what:
            self.wake()

    def end(self) -> None:
        """End this rank at its death, or stop a program that exceeds its limits."""
        if self.clock < self.dies:
            self.world.stop(self)
        self.died, self.clock = True, self.dies
        raise GreenletExit


def described(call: Any) -> str:
    """Describe the object or call (name, buffer, peer, tag) that a rank waits for."""
    if call.__class__ is not tuple:
        return call.describe()
    name, buffer, peer, tag = call
    return f"{name}={label(peer)}, tag={label(tag)}, {buffer.nbytes} bytes)"


def mail(nbytes: int, tag: int, source: int, dest: int) -> str:
    """Describe a message that was not received."""
    return f"{nbytes} bytes, tag={label(tag)}, from rank {source} to rank {dest}"


def label(number: int) -> str:
    """Return the name of a peer or tag: ANY, the tag's enum name, or the number."""
    return "ANY" if number == ANY else getattr(number, "name", str(number))
