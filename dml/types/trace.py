"""Rounds of a schedule; recorded intervals and messages."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Round(NamedTuple):
    """One exchange of a schedule: message k goes from rank source[k] to rank dest[k].

    A rank sends at most once and receives at most once per round, simultaneously, and
    continues when its send and its receive are complete.
    """

    source: np.ndarray
    dest: np.ndarray
    nbytes: np.ndarray  # of each message
    reduces: int  # reductions of as many bytes after the receive; False: it is stored
    segment: int = 0  # bytes per pipelined segment; 0: the message is one segment
    times: int = 1  # repetitions of the round


class Interval(NamedTuple):
    """A phase of a rank, or a call that may block."""

    rank: int
    name: str  # of a phase: gradient, ...; or of a call: Recv, Sendrecv, Wait, ...
    start: float  # seconds since a barrier of all ranks
    end: float


class Message(NamedTuple):
    """A message, with the times of its send and of its receipt."""

    source: int
    dest: int
    tag: int
    nbytes: int
    sent: float  # seconds since a barrier of all ranks
    received: float


class Timeline(NamedTuple):
    """Intervals and messages of all ranks, on one clock."""

    intervals: Sequence[Interval]
    messages: Sequence[Message]
