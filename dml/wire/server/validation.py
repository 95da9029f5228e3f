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
    keys_end,
)

KINDS = PULL | PUSH | CLOCK | END | KEYS | BITS | SLOT | SECOND
NOT_IN_PULLS = PUSH | BITS | CLOCK | END
CLOCKED = PUSH | CLOCK  # kinds of messages that have the number of the worker's clock
MAX_LISTS = 1 << 20  # numbers of lists of keys
MAX_CLOCK = 1 << 48
MAX_WEIGHT = 1e6


class Malformed(Exception):
    """A message that the protocol does not allow; the text is the reason."""


def check_head(head: Head, nbytes: int, rows: int, clocks: int, version: int) -> None:
    """Raise Malformed for a head that no client sends.

    Args:
      head: The head.
      nbytes: Length of the message.
      rows: Number of rows of the server.
      clocks: Number of clocks that the worker has ended.
      version: Version of the server's rows.
    """
    kind, count, start, clock, read_version, _, _, weight, _ = head
    # in this order, and in one function: it takes 0.5 us of each message
    if not 0 < kind <= KINDS or kind & PULL and kind & NOT_IN_PULLS:
        raise Malformed(f"kind {kind}")
    if count < 0 or count > rows or start > rows - count or start < -MAX_LISTS:
        raise Malformed(f"{count} rows from {start} of {rows}")
    if not 0 <= weight <= MAX_WEIGHT:  # also NaN
        raise Malformed(f"weight {weight}")
    if not 0 <= read_version <= version:
        raise Malformed(f"version {read_version} of {version}")
    if kind & CLOCKED:
        if not clocks <= clock <= MAX_CLOCK:
            raise Malformed(f"clock {clock} after {clocks} clocks")
    elif nbytes != keys_end(count, kind):
        raise Malformed(f"{nbytes} bytes instead of {keys_end(count, kind)}")


def check_keys(keys: np.ndarray, rows: int) -> None:
    """Raise Malformed for a key that is not a row of the server."""
    if len(keys) and (keys.min() < 0 or keys.max() >= rows):
        bad = keys[(keys < 0) | (keys >= rows)][0]
        raise Malformed(f"row {bad} of {rows}")
