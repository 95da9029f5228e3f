"""The head of a message to a parameter server: it precedes keys and values.

| head, 64 bytes | keys, where the server does not know them | values, N x D |
"""

import struct
from typing import NamedTuple

import numpy as np

NBYTES = 64
INLINE = 1 << 16  # bytes of values that are copied behind their head
FORM = struct.Struct("<iiqqqiidd")
WORDS = 4  # int64 before the rows of a reply: clock, version, applied, rows
FLOATS = 2 * WORDS  # as many of float32
LAST = np.full(WORDS, -1)  # no more changes come


# Kinds of a message, which may have several. Plain numbers: enums take microseconds.
PULL = 1  # request rows, when all gradients of clocks before `clock` are applied
PUSH = 2  # gradients
CLOCK = 4  # this worker has ended `clock`
END = 8  # this worker sends no more messages
KEYS = 16  # the message has keys, which later ones replace by a number
BITS = 32  # the message has a mask of the keys with values


class Head(NamedTuple):
    kind: int
    rows: int  # keys
    start: int  # the first of consecutive rows, or -1 - the number of known keys
    clock: int
    version: int  # of the rows that the gradients are of
    replies: int  # that the sender has received from this server
    changes: int  # messages of changed rows that it has received
    weight: float  # of the gradients in their minibatch
    loss: float


def write(head: Head, message: np.ndarray) -> None:
    FORM.pack_into(message.data, 0, *head)


def read(message: np.ndarray) -> Head:
    return Head(*FORM.unpack_from(message.data))


def keys_end(rows: int, kind: int) -> int:
    """Return the first byte of the mask or the values: a multiple of 8."""
    return NBYTES + (-(-rows // 2) * 8 if kind & KEYS else 0)


def bits_end(rows: int, kind: int) -> int:
    """Return the first byte of the values: a multiple of 8."""
    return keys_end(rows, kind) + (-(-rows // 64) * 8 if kind & BITS else 0)


def is_separate(rows: int, width: int) -> bool:
    """Return whether the values are a separate message."""
    return 4 * rows * width > INLINE


def longest(rows: int, width: int) -> int:
    """Return the largest number of bytes of a message with so many rows."""
    return bits_end(rows, KEYS | BITS) + min(INLINE, 4 * rows * width)
