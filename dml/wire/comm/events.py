"""Events: facts that differ between runs of a program, such as the order of messages.

An event is encoded in 64 bits: its kind, and either the source and the tag of a message
or one signed number of 60 bits.

bits  63 … 60   59 … 32   31 … 0
      kind      source    tag
      kind      number
"""

from array import array
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from dml.types import ANY, BadInput, Status

NUMBER_BITS, TAG_BITS = 60, 32
NUMBER_MASK, TAG_MASK = (1 << NUMBER_BITS) - 1, (1 << TAG_BITS) - 1
SIGN_BIT = 1 << NUMBER_BITS - 1


class Kind(IntEnum):
    GROUP = 0  # a communicator was made; its "source" is this rank, its "tag" the size
    RECV = 1
    SENDRECV = 2
    IRECV = 3  # in the order in which Irecvs are posted
    UNMATCHED = 4  # an Irecv that received no message
    PROBE = 5
    IPROBE = 6  # an Iprobe that returned True
    TEST = 7  # a Test that returned True
    COMPUTE = 8  # a compute(unless) that ended early
    UNSUCCESSFUL = 9  # a number of unsuccessful Iprobes, Tests and computes in a row
    WAITANY = 10
    NOTE = 11
    FAILED = 12  # a call that raised RankFailed, by its number
    RANKS = 13  # a number of ranks that died or live; or one of these ranks
    AGREED = 14  # the result of an Agree


DESCRIPTIONS = {
    Kind.GROUP: "rank {source} of {tag} in a communicator",
    Kind.RECV: "Recv from rank {source} with tag {tag}",
    Kind.SENDRECV: "Sendrecv that receives from rank {source} with tag {tag}",
    Kind.IRECV: "Irecv from rank {source} with tag {tag}",
    Kind.UNMATCHED: "Irecv that receives no message",
    Kind.PROBE: "Probe that returns rank {source} and tag {tag}",
    Kind.IPROBE: "Iprobe that returns rank {source} and tag {tag}",
    Kind.TEST: "Test of a completed request",
    Kind.COMPUTE: "compute that a completed request ends early",
    Kind.UNSUCCESSFUL: "{number} unsuccessful polls",
    Kind.WAITANY: "Waitany that returns {number}",
    Kind.NOTE: "note of {number}",
    Kind.FAILED: "RankFailed in call {number}",
    Kind.RANKS: "number or rank {number} of dead or living ranks",
    Kind.AGREED: "Agree that returns {number}",
}
WITH_MESSAGE = {Kind.RECV, Kind.SENDRECV, Kind.IRECV, Kind.PROBE, Kind.IPROBE}


class Event(NamedTuple):
    """A decoded event."""

    kind: Kind
    number: int

    @property
    def source(self) -> int:
        return self.number >> TAG_BITS

    @property
    def tag(self) -> int:
        return self.number & TAG_MASK

    def matches(self, source: int, tag: int) -> bool:
        """Return whether a receive of this source and tag matches the message."""
        if self.kind is Kind.UNMATCHED:
            return True
        return source in (ANY, self.source) and tag in (ANY, self.tag)

    def __str__(self) -> str:
        return DESCRIPTIONS[self.kind].format(
            number=self.number, source=self.source, tag=self.tag
        )


def decode(code: int) -> Event:
    number = code & NUMBER_MASK
    return Event(Kind(code >> NUMBER_BITS), number - 2 * (number & SIGN_BIT))


def encode(kind: Kind, number: int) -> int:
    return kind << NUMBER_BITS | number & NUMBER_MASK


def message_number(source: int, tag: int) -> int:
    """Return the number of an event with a source and a tag."""
    return source << TAG_BITS | tag


class Events:
    """The events of one communicator of one rank, recorded or replayed in order.

    Consecutive unsuccessful polls are one event with their number.

    Attributes:
      owner: Rank and communicator as text, for error messages.
      codes: Encoded events.
      position: Index of the next event of a replay.
      polls_replayed: Number of polls of the next event that are already replayed.
    """

    def __init__(self, owner: str = "", codes: Iterable[int] = ()) -> None:
        self.owner, self.codes = owner, array("Q", codes)
        self.position = self.polls_replayed = 0

    # Recording.

    def add(self, kind: Kind, number: int = 0) -> int:
        """Append an event; return its index."""
        if not -SIGN_BIT <= number < SIGN_BIT:
            raise BadInput(
                f"{self.owner}: expected a number of {NUMBER_BITS} bits to note, got "
                f"{number}; note a version, a count or a hash of {NUMBER_BITS} bits"
            )
        self.codes.append(encode(kind, number))
        return len(self.codes) - 1

    def add_message(self, kind: Kind, status: Any) -> None:
        """Append an event with the source and the tag of a received message."""
        self.add(kind, message_number(status.Get_source(), status.Get_tag()))

    def set_received(self, index: int, status: Any) -> None:
        """Replace the event of an Irecv that was UNMATCHED by its message."""
        number = message_number(status.Get_source(), status.Get_tag())
        self.codes[index] = encode(Kind.IRECV, number)

    def add_poll(self, kind: Kind, success: bool, status: Status | None = None) -> None:
        """Append a successful poll, or count an unsuccessful one."""
        if success:
            self.add(kind, message_number(status.source, status.tag) if status else 0)
        elif self.codes[-1] >> NUMBER_BITS == Kind.UNSUCCESSFUL:
            self.codes[-1] += 1
        else:
            self.add(Kind.UNSUCCESSFUL, 1)

    # Replaying.

    def peek(self) -> Event | None:
        """Return the next event, with its remaining polls; None at the end."""
        if self.position == len(self.codes):
            return None
        event = decode(self.codes[self.position])
        if self.polls_replayed:
            event = event._replace(number=event.number - self.polls_replayed)
        return event

    def take(self, *kinds: Kind, pattern: tuple[int, int] = (ANY, ANY)) -> Event:
        """Return the next event and advance.

        Raises BadInput unless the event has one of the kinds and matches the pattern,
        the source and the tag of a receive.
        """
        event = self.peek()
        if event is None or event.kind not in kinds or not event.matches(*pattern):
            raise self.mismatch(call_text(kinds[0], pattern))
        self.position += 1
        return event

    def take_poll(
        self, kind: Kind, pattern: tuple[int, int] = (ANY, ANY)
    ) -> Event | None:
        """Return the event of a successful poll as `take` does; else None."""
        event = self.peek()
        if event is None or event.kind is not Kind.UNSUCCESSFUL:
            return self.take(kind, pattern=pattern)
        self.polls_replayed += 1
        if event.number == 1:
            self.position, self.polls_replayed = self.position + 1, 0
        return None

    def expect(self, kind: Kind, number: int) -> None:
        """Advance; raise BadInput unless the next event has this kind and number."""
        event = Event(kind, number)
        if self.peek() != event:
            raise self.mismatch(str(event))
        self.position += 1

    def expect_end(self) -> None:
        """Raise BadInput if there are further events."""
        if self.position < len(self.codes):
            raise self.mismatch("the end of the program")

    def mismatch(self, got: str) -> BadInput:
        """Return the error for a call that differs from the next event."""
        event = self.peek()
        count = max(0, len(self.codes) - 1)  # without the GROUP event at index 0
        expected = event or f"the end: the record ends after {count} events"
        return BadInput(
            f"{self.owner}, event {self.position}: expected {expected}, got {got}; "
            "replay the program that was recorded"
        )


def call_text(kind: Kind, pattern: tuple[int, int]) -> str:
    """Return the text of a call, with the source and the tag of a receive."""
    name = "compute" if kind is Kind.COMPUTE else kind.name.capitalize()
    if kind not in WITH_MESSAGE:
        return name
    source, tag = ("ANY" if value == ANY else int(value) for value in pattern)
    return f"{name}({source=!s}, {tag=!s})"
