"""Events: facts that differ between runs of a program, such as the order of messages.

An event is one word.

bits  63 … 60   59 … 32   31 … 0
      kind      source    tag        of a message, or one number of 60 bits
"""

from array import array
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from dml.types import ANY, BadInput, Status

BITS = 60
MASK, SIGN = (1 << BITS) - 1, 1 << BITS - 1
TAGS = (1 << 32) - 1


class Kind(IntEnum):
    GROUP = 0  # a communicator: this rank in it, and its size
    RECV = 1
    SENDRECV = 2
    IRECV = 3  # at the place where it was posted
    NEVER = 4  # an Irecv that had no message
    PROBE = 5
    IPROBE = 6  # that saw a message
    TEST = 7  # that found its request done
    COMPUTE = 8  # that its request ended
    VAIN = 9  # a number of unsuccessful polls of the three kinds above
    WAITANY = 10
    NOTE = 11


SAYS = {
    Kind.GROUP: "rank {source} of {tag} in a communicator",
    Kind.RECV: "Recv from rank {source} with tag {tag}",
    Kind.SENDRECV: "Sendrecv that receives from rank {source} with tag {tag}",
    Kind.IRECV: "Irecv from rank {source} with tag {tag}",
    Kind.NEVER: "Irecv that never has a message",
    Kind.PROBE: "Probe that sees rank {source} with tag {tag}",
    Kind.IPROBE: "Iprobe that sees rank {source} with tag {tag}",
    Kind.TEST: "Test of a request that is done",
    Kind.COMPUTE: "compute that a request cuts off",
    Kind.VAIN: "{number} polls in vain",
    Kind.WAITANY: "Waitany that returns {number}",
    Kind.NOTE: "{number} noted",
}


class Event(NamedTuple):
    """A decoded word."""

    kind: Kind
    number: int

    @property
    def source(self) -> int:
        return self.number >> 32

    @property
    def tag(self) -> int:
        return self.number & TAGS

    def fits(self, source: int, tag: int) -> bool:
        """Return whether a receive of this source and tag matches the message."""
        if self.kind is Kind.NEVER:
            return True
        return source in (ANY, self.source) and tag in (ANY, self.tag)

    def __str__(self) -> str:
        how = {"number": self.number, "source": self.source, "tag": self.tag}
        return SAYS[self.kind].format(**how)


def decoded(word: int) -> Event:
    number = word & MASK
    return Event(Kind(word >> BITS), number - 2 * (number & SIGN))


def encoded(kind: Kind, number: int) -> int:
    return kind << BITS | number & MASK


def message(source: int, tag: int) -> int:
    return source << 32 | tag


class Events:
    """The events of one communicator of one rank: added at the end, read from `at`.

    Consecutive unsuccessful polls are one event with their count.
    """

    def __init__(self, where: str = "", words: Iterable[int] = ()) -> None:
        self.where, self.words = where, array("Q", words)
        self.at = self.spent = 0  # the next event; its polls that are used up

    # Recording.

    def add(self, kind: Kind, number: int = 0) -> int:
        """Add an event; return its place."""
        if not -SIGN <= number < SIGN:
            raise BadInput(
                f"{self.where}: expected a number of {BITS} bits to note, got {number}"
                "; note a version, a count or a hash cut to them"
            )
        self.words.append(encoded(kind, number))
        return len(self.words) - 1

    def saw(self, kind: Kind, status: Any) -> None:
        self.add(kind, message(status.Get_source(), status.Get_tag()))

    def fill(self, place: int, status: Any) -> None:
        """Set the event of an Irecv, at the place where it was posted."""
        number = message(status.Get_source(), status.Get_tag())
        self.words[place] = encoded(Kind.IRECV, number)

    def polled(self, kind: Kind, there: bool, status: Status | None = None) -> None:
        if there:
            self.add(kind, message(status.source, status.tag) if status else 0)
        elif self.words[-1] >> BITS == Kind.VAIN:
            self.words[-1] += 1
        else:
            self.add(Kind.VAIN, 1)

    # Replaying.

    def now(self) -> Event | None:
        if self.at == len(self.words):
            return None
        event = decoded(self.words[self.at])
        return event._replace(number=event.number - self.spent) if self.spent else event

    def take(self, *kinds: Kind, asks: tuple[int, int] = (ANY, ANY)) -> Event:
        """Return the next event; raise unless its kind, source and tag match."""
        event = self.now()
        if event is None or event.kind not in kinds or not event.fits(*asks):
            raise self.differs(called(kinds[0], asks))
        self.at += 1
        return event

    def poll(self, kind: Kind, asks: tuple[int, int] = (ANY, ANY)) -> Event | None:
        """Return the next event as `take` does; None for an unsuccessful poll."""
        event = self.now()
        if event is None or event.kind is not Kind.VAIN:
            return self.take(kind, asks=asks)
        self.spent += 1
        if event.number == 1:
            self.at, self.spent = self.at + 1, 0
        return None

    def meets(self, kind: Kind, number: int) -> None:
        """Consume the next event; raise unless it equals this one."""
        got = Event(kind, number)
        if self.now() != got:
            raise self.differs(str(got))
        self.at += 1

    def ends(self) -> None:
        """Raise if events are left."""
        if self.at < len(self.words):
            raise self.differs("the end of the program")

    def differs(self, got: str) -> BadInput:
        event = self.now()
        count = max(0, len(self.words) - 1)  # but for its communicator's own
        expected = event or f"the end: the record ends after {count} events"
        return BadInput(
            f"{self.where}, event {self.at}: expected {expected}, got {got}; "
            "replay the program that was recorded"
        )


def called(kind: Kind, asks: tuple[int, int]) -> str:
    """Return the text of a call."""
    name = "compute" if kind is Kind.COMPUTE else kind.name.capitalize()
    if kind not in MESSAGES:
        return name
    source, tag = ("ANY" if one == ANY else int(one) for one in asks)
    return f"{name}({source=!s}, {tag=!s})"


MESSAGES = {Kind.RECV, Kind.SENDRECV, Kind.IRECV, Kind.PROBE, Kind.IPROBE}
