"""Barriers, all-gathers and all-to-all exchanges."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.sim.mpi.channel import Channel
from dml.sim.mpi.trees import bcast_linear, gather_linear

NOTHING = np.zeros(0, np.uint8)


def barrier_dissemination(channel: Channel) -> None:
    """Exchange empty messages at the distances 1, 2, 4, …: ⌈lg p⌉ rounds."""
    rank, size, step = channel.rank, channel.size, 1
    while step < size:
        dest, source = (rank + step) % size, (rank - step) % size
        channel.exchange(NOTHING, dest, source, NOTHING)
        step *= 2


def barrier_linear(channel: Channel) -> None:
    """Report to rank 0, which answers all: 2(p - 1) rounds."""
    gather_linear(channel, NOTHING, 0)
    bcast_linear(channel, NOTHING, 0)


def allgather_ring(channel: Channel, value: Any, likes: Sequence[Any]) -> list[Any]:
    """Return the values of all ranks, by p - 1 exchanges with the neighbours.

    Args:
      channel: Of one call.
      value: This rank's value.
      likes: Examples of the values of all ranks, which may differ in length.
    """
    rank, size = channel.rank, channel.size
    after, before = (rank + 1) % size, (rank - 1) % size
    found = [*likes]
    found[rank] = value
    for k in range(size - 1):
        out, into = (rank - k) % size, (rank - k - 1) % size
        found[into] = channel.exchange(found[out], after, before, likes[into])
    return found


def allgather_bruck(channel: Channel, value: Any, likes: Sequence[Any]) -> list[Any]:
    """Return the values of all ranks by ⌈lg p⌉ exchanges (Bruck 1997).

    In the round of distance d, a rank sends the first d values that it holds, its own
    first, to the rank at distance -d.
    """
    rank, size = channel.rank, channel.size
    held, step = [value], 1
    while step < size:
        count = min(step, size - step)
        source, dest = (rank + step) % size, (rank - step) % size
        expected = [likes[(source + k) % size] for k in range(count)]
        message = channel.exchange(
            channel.join(held[:count]), dest, source, channel.join(expected)
        )
        held += parted(channel, message, expected)
        step *= 2
    return [held[(k - rank) % size] for k in range(size)]


def parted(channel: Channel, message: Any, likes: Sequence[Any]) -> list[Any]:
    """Divide a message of several values, which may differ in length."""
    if isinstance(message, list):
        return message
    ends = np.cumsum([len(like) for like in likes])
    return np.split(message, ends[:-1])


def allgather_linear(channel: Channel, value: Any, likes: Sequence[Any]) -> list[Any]:
    """Exchange with each rank in turn: p - 1 rounds."""
    rank, size = channel.rank, channel.size
    found = [*likes]
    found[rank] = value
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        found[source] = channel.exchange(value, dest, source, likes[source])
    return found


def alltoall_pairwise(
    channel: Channel, values: Sequence[Any], likes: Sequence[Any]
) -> list[Any]:
    """Exchange values[k] with the rank at distance k: p - 1 rounds."""
    rank, size = channel.rank, channel.size
    found = [*likes]
    found[rank] = values[rank]
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        found[source] = channel.exchange(values[dest], dest, source, likes[source])
    return found


def alltoall_bruck(
    channel: Channel, values: Sequence[Any], likes: Sequence[Any]
) -> list[Any]:
    """Exchange values of one length by ⌈lg p⌉ messages of ⌈p/2⌉ values (Bruck 1997).

    held[k] has k steps to go; the bit d of k is a step to the rank at distance d.
    """
    rank, size = channel.rank, channel.size
    held = [values[(rank + k) % size] for k in range(size)]
    step = 1
    while step < size:
        moved = [k for k in range(size) if k & step]
        dest, source = (rank + step) % size, (rank - step) % size
        like = channel.several(held[0], len(moved))
        message = channel.exchange(
            channel.join([held[k] for k in moved]), dest, source, like
        )
        for k, value in zip(moved, channel.split(message, len(moved)), strict=True):
            held[k] = value
        step *= 2
    return [held[(rank - k) % size] for k in range(size)]
