"""A virtual rank: a clock, two ports, and a greenlet that switches when it waits."""

from typing import Any

from greenlet import GreenletExit, getcurrent

from dml.types import ANY


class Process:
    """One virtual rank: its clock, its ports and its greenlet; all times in seconds."""

    __slots__ = (
        *(
            "budget",
            "clock",
            "created",
            "death",
            "died",
            "end_time",
            "failure",
            "fiber",
            "in_free",
        ),
        *("open_receives", "out_free", "polled", "polls", "processed_until", "rank"),
        *("rendezvous_free", "root", "waiting_sends", "waits", "world"),
    )

    def __init__(self, world: Any, rank: int):
        self.world, self.rank = world, rank
        self.clock = self.out_free = self.in_free = 0.0
        self.rendezvous_free = 0.0  # end of the last send that waited for its receive
        self.root: Any = None  # greenlet of the program
        self.fiber: Any = None  # greenlet to resume: root, or one that root started
        self.waits: Any = None  # call or request that it waits for; see `describe`
        self.polls: Any = None  # object that it polls, with `done` and `describe()`
        self.polled = False  # polled without success since its clock last advanced
        self.processed_until = -1.0  # all events up to this time have been processed
        self.created = 0  # number of communicators and windows that it created
        self.budget = world.limits.messages  # messages and waits left
        self.open_receives = 0  # receives posted and not matched
        self.waiting_sends = 0  # sends longer than `eager`, posted and not matched
        self.death, self.died = float("inf"), False
        self.failure: Any = None  # exception that ends the present wait
        self.end_time = world.limits.seconds  # time limit, or its death if earlier

    def wait(self, what: Any) -> None:
        """Suspend this rank until another calls `wake`."""
        self.waits = what
        self.switch()

    def wake(self) -> None:
        self.waits = None
        self.world.ready.append(self)

    def interrupt(self, failure: Exception) -> None:
        """End the wait of this rank by an exception."""
        self.failure, self.end_time = failure, -1.0  # `switch` then calls `end`
        self.wake()

    def order(self, time: float) -> None:
        """Suspend this rank until all events before `time` are processed."""
        world, self.processed_until = self.world, time
        others = world.ready or world.polling or world.starting
        if others or (world.events and world.events[0][0] <= time):
            world.schedule(time, self.rank, self)
            self.switch()

    def pause(self) -> None:
        """Yield to the other ranks that can run; used while polling."""
        world = self.world
        world.polling.append(self)
        world.idle += 1
        if world.idle > len(world.polling) and not (world.ready or world.starting):
            world.skip_polling()
        self.switch()

    def switch(self) -> None:
        self.fiber = getcurrent()
        self.budget -= 1
        world = self.world
        if world.ready and not world.ending:
            world.ready.pop().fiber.switch()
        elif world.polling and not world.starting:
            world.polling.popleft().fiber.switch()
        else:
            world.hub.switch()
        if self.clock >= self.end_time or self.budget < 0:
            self.end()

    def compute(self, seconds: float, unless: Any = None) -> bool:
        """Advance the clock, at most until a request completes.

        If this rank polled, events before the new time are processed first.

        Args:
          seconds: Virtual seconds to pass.
          unless: Request whose completion ends the computation; None for no request.

        Returns:
          Whether all the seconds passed.
        """
        end = self.clock + float(seconds)  # not a NumPy float, which is slow
        if unless is not None and unless.done < 0:
            what = unless.interruptible()
            self.world.schedule(end, self.rank, lambda: self.wake_from(what))
            self.wait(what)
        passed = unless is None or not 0 <= unless.done < end
        if not passed:
            end = max(self.clock, unless.done)
        self.world.progress()
        self.clock = end
        if self.polled and self.clock < self.end_time:
            self.polled = False
            self.order(self.clock)
        if self.clock >= self.end_time:
            self.end()
        return passed

    def wake_from(self, what: Any) -> None:
        """Wake this rank if it still waits for `what`."""
        if self.waits is what:
            self.wake()

    def end(self) -> None:
        """End a wait that fails, a rank at its death, or a run beyond its limits."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            self.end_time = min(self.world.limits.seconds, self.death)
            if self.clock < self.death:
                raise failure
        if self.clock < self.death:
            self.world.stop(self)
        self.died, self.clock = True, self.death
        raise GreenletExit


def describe(call: Any) -> str:
    """Describe the request or call (name, buffer, peer, tag) that a rank waits for."""
    if call.__class__ is not tuple:
        return call.describe()
    name, buffer, peer, tag = call
    return f"{name}={name_of(peer)}, tag={name_of(tag)}, {buffer.nbytes} bytes)"


def describe_message(nbytes: int, tag: int, source: int, dest: int) -> str:
    """Describe a message, for reports."""
    return f"{nbytes} bytes, tag={name_of(tag)}, from rank {source} to rank {dest}"


def name_of(number: int) -> str:
    """Return the name of a peer or tag: ANY, the tag's enum name, or the number."""
    return "ANY" if number == ANY else getattr(number, "name", str(number))
