"""Schedules of messages, and recorded intervals and messages of ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Round(NamedTuple):
    """One exchange of a schedule: message k goes from source[k] to dest[k].

    No rank sends twice or receives twice in a round; a rank that does both does both at
    once, and goes on when both are done.
    """

    source: np.ndarray
    dest: np.ndarray
    nbytes: np.ndarray  # of each message
    reduces: bool  # what is received is reduced, else kept
    segment: int = 0  # bytes that travel while those before them are reduced; 0: all
    times: int = 1  # that the round is repeated


class Interval(NamedTuple):
    """What one rank did from start to end: a phase, or a call that waited."""

    rank: int
    name: str  # gradient, wire, update, wait; Recv, Sendrecv, Wait, ...
    start: float  # seconds since all ranks met
    end: float


class Message(NamedTuple):
    """A message, from when its sender sent it to when its receiver had it."""

    source: int
    dest: int
    tag: int
    nbytes: int
    sent: float
    received: float


class Timeline(NamedTuple):
    """What all ranks did, on one clock."""

    intervals: Sequence[Interval]
    messages: Sequence[Message]
