"""Estimates of long virtual runs, printed before they start."""

import sys

import numpy as np

from dml.types import Comm
from dml.wire.collectives import chosen
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

# Seconds of one core for a message between virtual ranks, by what sends it; measured
# on a core of an AMD EPYC (family 26, Zen 5) machine (docs/measured/virtual.md).
SECONDS = {
    "ring": 2.6e-6,  # 1,024 ranks
    "hierarchical": 3.8e-6,  # 1,024 ranks on hosts of 4
    "shared": 1.2e-6,  # a read of another rank's memory; 512 ranks
    "butterfly": 8.5e-6,  # 16,384 ranks
    "halving_doubling": 9.5e-6,  # 16,384 ranks
    "tree": 2.0e-5,  # 16,384 ranks, which start for two messages each
    "star": 1.7e-5,  # likewise
    "any": 1.7e-5,  # received from any source; 10,001 ranks
    "server": 7.5e-5,  # with the work of a worker and a server on it; 4,096 ranks
}
LONG = 20.0  # seconds; shorter runs print nothing


def warn(comm: Comm, what: str, messages: int, kind: str) -> None:
    """Print the messages and seconds of a part of a virtual run that takes long.

    kind: what sends the messages, one of SECONDS; others are as slow as "any".
    """
    seconds = messages * SECONDS.get(kind, SECONDS["any"])
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
