"""Checks of a message to a parameter server, before it changes any state.

    message ─► length, kind ─► rows ─► clock, counts ─► handled
                  └──────────────┴───────────┴────────► refused: worker and reason

Keys are checked when their list is stored, once for all messages with its number. The
values of a gradient may be any numbers; a robust rule withstands them (`robust`).
"""

import numpy as np

from dml.wire.server.header import (
    BITS,
    CLOCK,
    END,
    KEYS,
    PULL,
    PUSH,
    SECOND,
    SLOT,
    Head,
    bits_end,
    is_separate,
    keys_end,
)

KINDS = PULL | PUSH | CLOCK | END | KEYS | BITS | SLOT | SECOND
MAX_LISTS = 1 << 20  # numbers of lists of keys
MAX_WEIGHT = 1e6


class Malformed(Exception):
    """A message that the protocol does not allow; the text is the reason."""


def check_head(head: Head, nbytes: int, rows: int) -> None:
    """Raise Malformed for a head that no client sends.

    Args:
      head: The head.
      nbytes: Length of the message.
      rows: Number of rows of the server.
    """
    kind = head.kind
    if not 0 < kind <= KINDS or kind & PULL and kind & (PUSH | BITS | CLOCK | END):
        raise Malformed(f"kind {kind}")
    if not 0 <= head.rows <= rows:
        raise Malformed(f"{head.rows} keys for {rows} rows")
    if head.start >= 0 and head.start + head.rows > rows:
        raise Malformed(f"rows from {head.start} to {head.start + head.rows} of {rows}")
    if head.start < -MAX_LISTS:
        raise Malformed(f"list of keys {-1 - head.start}")
    if not 0 <= head.weight <= MAX_WEIGHT:  # also NaN
        raise Malformed(f"weight {head.weight}")
    if not kind & PUSH and nbytes != keys_end(head.rows, kind):
        raise Malformed(f"{nbytes} bytes instead of {keys_end(head.rows, kind)}")


def check_keys(keys: np.ndarray, rows: int) -> None:
    """Raise Malformed for a key that is not a row of the server."""
    if len(keys) and (keys.min() < 0 or keys.max() >= rows):
        bad = keys[(keys < 0) | (keys >= rows)][0]
        raise Malformed(f"row {bad} of {rows}")


def check_push(head: Head, nbytes: int, rows: int, width: int) -> None:
    """Raise Malformed for a push whose length does not fit.

    Args:
      head: The head.
      nbytes: Length of the message.
      rows: Number of rows with values.
      width: Number of columns.
    """
    stop = bits_end(head.rows, head.kind)
    if not head.kind & SLOT and not is_separate(rows, width):
        stop += 4 * rows * width
    if nbytes != stop:
        raise Malformed(f"{nbytes} bytes instead of {stop}")
