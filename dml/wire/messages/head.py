"""What stands before the keys and the values of a message to a parameter server.

| head, 64 bytes | keys, where the server does not know them | values, N x D |
"""

import struct
from typing import NamedTuple

import numpy as np

NBYTES = 64
INLINE = 1 << 16  # bytes of values that are copied behind their head
FORM = struct.Struct("<iiqqqiidd")
WORDS = 4  # int64 before the rows of an answer: clock, version, applied, rows
FLOATS = 2 * WORDS  # as many of float32
LAST = np.full(WORDS, -1)  # no more changes come


# What a message asks for; it may be several. Plain numbers: enums take microseconds.
PULL = 1  # rows, when all gradients of clocks before `clock` are applied
PUSH = 2  # gradients
CLOCK = 4  # this worker has ended `clock`
END = 8  # and will say no more
KEYS = 16  # the keys are here, to be known by their number from now on
BITS = 32  # some keys have no values


class Head(NamedTuple):
    kind: int
    rows: int  # keys
    start: int  # the first of consecutive rows, or -1 - the number of known keys
    clock: int
    version: int  # of the rows that the gradients are of
    answers: int  # that the sender has had from this server
    changes: int  # likewise, of rows sent unasked
    weight: float  # of the gradients in their minibatch
    loss: float


def write(head: Head, message: np.ndarray) -> None:
    FORM.pack_into(message.data, 0, *head)


def read(message: np.ndarray) -> Head:
    return Head(*FORM.unpack_from(message.data))


def keys_end(rows: int, kind: int) -> int:
    """Return where the bits or the values begin: at a multiple of 8 bytes."""
    return NBYTES + (-(-rows // 2) * 8 if kind & KEYS else 0)


def bits_end(rows: int, kind: int) -> int:
    """Return where the values of a message begin: at a multiple of 8 bytes."""
    return keys_end(rows, kind) + (-(-rows // 64) * 8 if kind & BITS else 0)


def apart(rows: int, width: int) -> bool:
    """Say whether so many values are a message of their own."""
    return 4 * rows * width > INLINE


def longest(rows: int, width: int) -> int:
    """Return the most bytes that a message about so many rows takes."""
    return bits_end(rows, KEYS | BITS) + min(INLINE, 4 * rows * width)
