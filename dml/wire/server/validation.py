"""Checks of a message to a parameter server, before it changes any state.

    message ─► length, kind ─► rows ─► clock, counts ─► handled
                  └──────────────┴───────────┴────────► refused: worker and reason

Keys are checked when their list is stored, once for all messages with its number. The
values of a gradient may be any numbers; a robust rule withstands them (`robust`).
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from dml.wire.server.header import (
    BITS,
    CLOCK,
    END,
    FORMAT,
    KEYS,
    NBYTES,
    PULL,
    PUSH,
    SECOND,
    SLOT,
    ServerHead,
    keys_end,
)

SLOTS = (0, SLOT, SLOT | SECOND)
KINDS = frozenset(
    [CLOCK, END]
    + [PULL | keys | slot for keys, slot in product((0, KEYS), SLOTS)]
    + [
        PUSH | clock | keys | bits | slot
        for clock, keys, bits, slot in product((0, CLOCK), (0, KEYS), (0, BITS), SLOTS)
    ]
)
MAX_CLOCK = 1 << 48
MAX_WEIGHT = 1e6

new = tuple.__new__  # ServerHead._make takes a microsecond
unpack = FORMAT.unpack_from


class Malformed(Exception):
    """A message that the protocol does not allow; the text is the reason."""


class Stale(Malformed):
    """A message of another run; its sender may be a worker of this one."""


class Limits(NamedTuple):
    """Bounds of the messages that a server accepts from its workers.

    Attributes:
      rows: Number of rows of the server.
      lists: Number of lists of keys of a worker.
      skips: Whether workers may skip clocks, as slow workers do with backup workers.
      run: Number of the run.
    """

    rows: int
    lists: int
    skips: bool
    run: int


def read_valid(
    message: np.ndarray, nbytes: int, limits: Limits, clocks: int, version: int
) -> ServerHead:
    """Return the head of a message; raise Malformed for one that no client sends.

    Args:
      message: The message.
      nbytes: Its length.
      limits: Limits of the server.
      clocks: Number of clocks that the worker has ended.
      version: Version of the server's rows.
    """
    head = new(ServerHead, unpack(message.data))
    kind, count, start, clock, read_version, _, _, weight, _, run = head
    rows, lists, skips, this_run = limits
    # one function without calls, since its time is part of the time of every message
    if run != this_run:
        raise Stale(f"a message of run {run} in run {this_run}")
    if kind not in KINDS:
        raise Malformed(f"kind {kind}")
    if not (0 <= count <= rows and -lists <= start <= rows - count):
        raise Malformed(f"{count} rows from {start} of {rows}")
    if not 0 <= weight <= MAX_WEIGHT:  # also NaN
        raise Malformed(f"weight {weight}")
    if not 0 <= read_version <= version:
        raise Malformed(f"version {read_version} of {version}")
    if kind & PULL:
        if not -1 <= clock <= MAX_CLOCK:
            raise Malformed(f"a pull of clock {clock}")
    elif clock != clocks and not (skips and clocks < clock <= MAX_CLOCK):
        raise Malformed(f"clock {clock} after {clocks} clocks")
    stop = NBYTES
    if kind & KEYS:
        stop = keys_end(count, kind)
        if start >= 0 or nbytes < stop:
            raise Malformed(f"{count} keys from {start} in {nbytes} bytes")
    if not kind & PUSH and nbytes != stop:
        raise Malformed(f"{nbytes} bytes of kind {kind} with {count} rows")
    return head


def check_keys(keys: np.ndarray, rows: int) -> None:
    """Raise Malformed for a key that is not a row of the server."""
    if len(keys) and (keys.min() < 0 or keys.max() >= rows):
        bad = keys[(keys < 0) | (keys >= rows)][0]
        raise Malformed(f"row {bad} of {rows}")
