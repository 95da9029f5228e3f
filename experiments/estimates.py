"""Estimates of long virtual runs, printed before they start."""

import sys

import numpy as np

from dml.types import Comm
from dml.wire.messages import chosen
from dml.wire.schedules import SCHEDULES
from dml.wire.topology import groups

SECONDS = 1.2e-5  # of one core, for a message between virtual ranks (docs/virtual.md)
LONG = 20.0  # seconds; shorter runs print nothing


def warn(comm: Comm, what: str, messages: int) -> None:
    """Print the messages and seconds of a part of a virtual run that takes long."""
    seconds = messages * SECONDS
    if not comm.platform.virtual or comm.rank or seconds < LONG:
        return
    took = f"{seconds:,.0f} s" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"
    sys.stdout.write(
        f"{what} on {comm.size:,} virtual ranks: about {messages:,} messages, {took} "
        "of one core\n"
    )
    sys.stdout.flush()


def allreduce(
    comm: Comm, name: str, buffer: np.ndarray, group: int = 0, outside: str = "ring"
) -> int:
    """Return the messages of an all-reduce, without their segments.

    A rank that reads the shared memory of another one counts as a message.
    """
    if name == "auto":
        name = chosen(comm, buffer)
    size = comm.size
    if name == "native":
        return size
    if name == "shared":
        return size * (size - 1)
    if name != "hierarchical":
        return count(name, size)
    sizes = [len(ranks) for ranks in groups(comm.platform.hosts(), group)]
    inside = sum(2 * one * (one - 1) for one in sizes)
    return inside + min(sizes) * count(outside, len(sizes))


def count(name: str, size: int) -> int:
    """Return the messages of a schedule; chunks of equal length repeat its rounds."""
    rounds = SCHEDULES[name](size, size)
    return sum(len(one.source) * one.times for one in rounds)
