"""The messages between volunteers: a head of 64 bytes, and entries or values.

| head: kind, sender, run, round, number, about, priority, bandwidth, length | body |

HELLO    a peer has entered a round      body: entries of its view
REPLY    answer to a HELLO               body: entries of its view
JOIN     the sender joins the receiver   number: of the try; about: of the binding
WELCOME  the JOIN has arrived            number: of the try
RELEASE  the binding is void             number: of the binding; about: a better leader
BEGIN    the group of a leader           body: entries of the members
ACK      the BEGIN has arrived
GONE     the sender is in a later round than the message that it answers
PING     request of a PONG               about: missing PART | MEAN | DONE
PONG     answer to a PING                about: items of the PING that were sent before
RESEND   request to send messages again  about: lost PART | MEAN | DONE
VALUES   contribution to a part          body: values
RESULT   mean of a part                  body: mask of contributors, values
FINISHED the sender has all results

A message is malformed if a field has a value that no peer sends: see `well_formed`.
"""

import struct
from typing import NamedTuple

import numpy as np

NBYTES = 64  # bytes of the head
FORMAT = struct.Struct("<iiqqqqqdi")

# Kinds: integers, as an access to an enum takes microseconds.
HELLO, REPLY, JOIN, WELCOME, RELEASE, BEGIN, ACK, GONE = range(8)
PING, PONG, RESEND, VALUES, RESULT, FINISHED = range(8, 14)

# Messages that a PING requests: VALUES, RESULT, FINISHED.
PART, MEAN, DONE = 1, 2, 4
ITEMS = PART | MEAN | DONE

WITH_ENTRIES = frozenset((HELLO, REPLY, BEGIN, GONE))
WITH_VALUES = frozenset((VALUES, RESULT))
WITH_LEADER = frozenset((RELEASE, BEGIN, VALUES, RESULT, FINISHED))  # `about` is a rank
WITH_ITEMS = frozenset((PING, PONG, RESEND))  # `about` is a set of items

NO_ROUND = -1  # before the first round
MOST_ROUNDS = 2**62
BANDWIDTHS = 1e-30, 1e30  # least and largest, except 0; their quotients are finite

ENTRY = np.dtype(
    [("id", "<i8"), ("beat", "<i8"), ("priority", "<i8"), ("bandwidth", "<f8")]
)


class VolunteerHead(NamedTuple):
    """The head of a message."""

    kind: int
    sender: int
    run: int  # number of the run, messages of other runs are dropped
    round: int
    number: int
    about: int
    priority: int  # of the sender
    bandwidth: float  # of the sender
    length: int  # bytes of the body


class Message(NamedTuple):
    """A received message; `body` is valid until the next receive."""

    head: VolunteerHead
    body: np.ndarray  # bytes

    def entries(self) -> np.ndarray:
        """Return the entries of the body."""
        return self.body.view(ENTRY)


def pack(head: VolunteerHead, nbytes: int = 0) -> np.ndarray:
    """Return a message with a head and an uninitialized body of `nbytes`."""
    message = np.empty(NBYTES + nbytes, np.uint8)
    FORMAT.pack_into(message.data, 0, *head._replace(length=nbytes))
    return message


def unpack(message: np.ndarray) -> Message:
    """Return the head and the body of a message of at least NBYTES bytes."""
    return Message(VolunteerHead(*FORMAT.unpack_from(message.data)), message[NBYTES:])


def well_formed(message: Message, source: int, size: int, width: int) -> bool:
    """Return whether all fields of a message have values that a peer may send.

    The result depends on the message only, and not on the state of its receiver, so a
    peer that passes on an entry which it has accepted sends no malformed message.

    Args:
      message: The message.
      source: Rank from which it has arrived.
      size: Number of ranks.
      width: Largest number of members of a group.
    """
    head, nbytes = message.head, len(message.body)
    return (
        HELLO <= head.kind <= FINISHED
        and head.sender == source
        and head.length == nbytes
        and NO_ROUND <= head.round < MOST_ROUNDS
        and 0 <= head.number < MOST_ROUNDS
        and 0 <= head.about < (size if head.kind in WITH_LEADER else MOST_ROUNDS)
        and (head.kind not in WITH_ITEMS or head.about <= ITEMS)
        and is_bandwidth(head.bandwidth)
        and (not nbytes or head.kind in WITH_VALUES or head.kind in WITH_ENTRIES)
        and (head.kind not in WITH_ENTRIES or has_entries(message, size, width))
    )


def has_entries(message: Message, size: int, width: int) -> bool:
    """Return whether the body consists of entries that a peer may send."""
    head, nbytes = message.head, len(message.body)
    if not nbytes or nbytes % ENTRY.itemsize:
        return False
    entries = message.entries()
    ids, beats = entries["id"], entries["beat"]
    valid = (
        (ids >= 0) & (ids < size) & (beats >= NO_ROUND) & (beats < MOST_ROUNDS)
    ).all() and all(map(is_bandwidth, entries["bandwidth"].tolist()))
    if head.kind != BEGIN:
        return bool(valid)
    inside = {head.sender, head.about} <= set(ids.tolist())
    ascending = bool((ids[1:] > ids[:-1]).all())
    return bool(valid) and inside and ascending and len(ids) <= width


def is_bandwidth(value: float) -> bool:
    """Return whether a peer may declare a bandwidth."""
    return value == 0 or BANDWIDTHS[0] <= value <= BANDWIDTHS[1]


def with_body(head: VolunteerHead, entries: np.ndarray) -> np.ndarray:
    """Return a message whose body consists of entries."""
    message = pack(head, entries.nbytes)
    message[NBYTES:] = entries.view(np.uint8)
    return message
