"""The head of a message to a parameter server: it precedes keys and values.

| head, 64 bytes | keys, unless the server knows them | mask | values, rows x width |

A pull has no values. A mask is sent if only some of the keys have values. Values of
more than INLINE bytes are a second message, or in a slot of shared memory.
"""

import struct
from typing import NamedTuple

import numpy as np

from dml.wire.costs.server import INLINE

NBYTES = 64  # bytes of the head
FORMAT = struct.Struct("<iiqqqiiddi")
# The head of a reply: clock, version, the worker's applied pushes, number of rows.
REPLY_INTS = 4  # int64 elements
REPLY_FLOATS = 2 * REPLY_INTS  # float32 elements with the same number of bytes
LAST = np.full(REPLY_INTS, -1)  # head of the message after the last changed rows

REFUSED = -2  # number of rows in the head of a reply to a refused pull


# Kinds of a message, combined by |. Plain numbers, as enums take microseconds.
PULL = 1  # request rows, when all gradients of clocks before `clock` are applied
PUSH = 2  # gradients
CLOCK = 4  # this worker has ended `clock`
END = 8  # this worker sends no more messages
KEYS = 16  # the message has keys; later messages have the number of their list
BITS = 32  # the message has a mask of the keys with values
SLOT = 64  # the values are in a slot of shared memory, see slots.py
SECOND = 128  # they are in the second slot


class ServerHead(NamedTuple):
    """The head of a message from a worker to a server."""

    kind: int
    rows: int  # number of keys
    start: int  # first of consecutive rows, or -1 - the number of the list of keys
    clock: int
    version: int  # version of the rows from which the gradients were computed
    replies: int  # number of replies that the worker has received from this server
    changes: int  # number of messages of changed rows that it has received
    weight: float  # share of the minibatch's examples
    loss: float
    run: int  # number of the run, so that messages of an earlier one are refused


def keys_end(rows: int, kind: int) -> int:
    """Return where the keys end, in bytes from the head's start: a multiple of 8."""
    return NBYTES + (-(-rows // 2) * 8 if kind & KEYS else 0)


def bits_end(rows: int, kind: int) -> int:
    """Return where the mask ends and the values start: a multiple of 8."""
    return keys_end(rows, kind) + (-(-rows // 64) * 8 if kind & BITS else 0)


def is_separate(rows: int, width: int) -> bool:
    """Return whether the values of `rows` rows are a separate message."""
    return 4 * rows * width > INLINE


def max_nbytes(rows: int, width: int) -> int:
    """Return an upper bound of the bytes of one message with `rows` rows.

    A row has 4 bytes of keys, less than one byte of the mask, and its values.
    """
    return NBYTES + 16 + 5 * rows + min(INLINE, 4 * rows * width)
