"""Messages of a chain of replicas: a header of int64 numbers, then bytes.

| kind | worker | number | received | tag | position | message of a worker or answer |

Each message of a worker has a number, by which every replica recognises a second copy.
Each answer of a Server to a worker has a number, too. Acknowledgements have the number
of the worker's last message at the tail, or of all messages stored at the tail.
"""

from typing import Any, NamedTuple

import numpy as np

NUMBERS = 6
NBYTES = 8 * NUMBERS

# Kinds of a message to a replica.
UPDATE = 0  # a message of a worker to its Server
DEATH = 1  # a worker has died; from the head
STORED = 2  # the tail has stored `number` messages; to the predecessor
JOIN = 3  # this successor has stored `number` messages, or NOTHING; to the predecessor
STATE = 4  # the state of a Server and of its replica; to a spare
LEAVE = 5  # a worker that needs no more answers
# Kinds of a message to a worker; `number` is that of its last stored message.
ACKNOWLEDGED = 6
ANSWER = 7  # also acknowledges; `received` is the number of the answer

NOTHING = -1


class Envelope(NamedTuple):
    """The head of a message, and its bytes."""

    kind: int
    worker: int = NOTHING
    number: int = 0  # of the worker's message, or of stored messages
    received: int = 0  # number of answers that the worker has received
    tag: int = 0  # of the message inside
    position: int = -1  # among the messages of the sending replica; -1: of a worker
    content: Any = ()  # uint8

    def follows(self, stored: int, last: int, is_head: bool) -> bool:
        """Return whether this is the next message of a replica.

        The long message before it may be lost, if its sender has died.

        Args:
          stored: Number of messages that the replica has stored.
          last: Number of the last stored message of this worker.
          is_head: Whether the replica orders the messages of all workers.
        """
        is_next = self.kind == DEATH or self.number == last + 1
        return is_next and (is_head or self.position == stored)

    def pack(self) -> np.ndarray:
        """Return the message as bytes."""
        message = np.empty(NBYTES + len(self.content), np.uint8)
        message[:NBYTES].view(np.int64)[:] = self[:NUMBERS]
        message[NBYTES:] = self.content
        return message


def unpack(message: np.ndarray) -> Envelope:
    """Return the head and the bytes of a message."""
    numbers = message[:NBYTES].view(np.int64).tolist()
    return Envelope._make([*numbers, message[NBYTES:]])


def set_position(message: np.ndarray, position: int) -> None:
    """Set the position of a packed message."""
    message[:NBYTES].view(np.int64)[NUMBERS - 1] = position


def as_bytes(buffer: np.ndarray) -> np.ndarray:
    """Return the bytes of a buffer, without a copy if it is contiguous."""
    return np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)
