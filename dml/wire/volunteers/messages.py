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

ENTRY = np.dtype(
    [("id", "<i8"), ("beat", "<i8"), ("priority", "<i8"), ("bandwidth", "<f8")]
)


class Head(NamedTuple):
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

    head: Head
    body: np.ndarray  # bytes; may be longer than `head.length`

    def entries(self) -> np.ndarray:
        """Return the entries of the body."""
        return self.body[: self.head.length].view(ENTRY)


def pack(head: Head, nbytes: int = 0) -> np.ndarray:
    """Return a message with a head and an uninitialized body of `nbytes`."""
    message = np.empty(NBYTES + nbytes, np.uint8)
    FORMAT.pack_into(message.data, 0, *head._replace(length=nbytes))
    return message


def unpack(message: np.ndarray) -> Message:
    """Return the head and the body of a message."""
    return Message(Head(*FORMAT.unpack_from(message.data)), message[NBYTES:])


def with_body(head: Head, entries: np.ndarray) -> np.ndarray:
    """Return a message whose body consists of entries."""
    message = pack(head, entries.nbytes)
    message[NBYTES:] = entries.view(np.uint8)
    return message
