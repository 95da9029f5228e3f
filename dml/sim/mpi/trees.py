"""Broadcasts, gathers and scatters: trees, and the root with all others.

The place of a rank is its number after the root. In a binomial tree, a place has its
children at the distances 1, 2, 4, … below its lowest bit.
"""

from typing import Any

from dml.sim.mpi.channel import Channel
from dml.wire.plans.topology import children, parent


def bcast_tree(channel: Channel, value: Any, root: int) -> Any:
    """Return the value of the root on all ranks.

        0 ──────────────► 4                    round 0
        0 ─────► 2        4 ─────► 6           round 1
        0 ─► 1   2 ─► 3   4 ─► 5   6 ─► 7      round 2

    ⌈lg p⌉ rounds, (p-1)n words over all ranks.
    """
    size = channel.size
    place = (channel.rank - root) % size
    if place:
        value = channel.receive((parent(place) + root) % size, value)
    for child in reversed([*children(place, size)]):
        channel.send(value, (child + root) % size)
    return value


def bcast_linear(channel: Channel, value: Any, root: int) -> Any:
    """Send from the root to each rank: p - 1 rounds, (p-1)n words."""
    if channel.rank != root:
        return channel.receive(root, value)
    for rank in range(channel.size):
        if rank != root:
            channel.send(value, rank)
    return value


def bcast_ring(channel: Channel, value: Any, root: int) -> Any:
    """Scatter the value down a tree, then gather its parts around a ring.

    ⌈lg p⌉ + p - 1 rounds; a rank receives and sends at most 2n words.
    """
    if channel.nbytes(value) < channel.size:
        return bcast_tree(channel, value, root)
    size, length = channel.size, len(value)
    padded = channel.several(value, 1).copy() if channel.rank != root else value
    step = -(-length // size)
    parts = [padded[k * step : (k + 1) * step] for k in range(size)]
    place = (channel.rank - root) % size
    low = place & -place if place else 1 << (size - 1).bit_length()
    own = slice(place * step, min(place + low, size) * step)
    if place:
        padded[own] = channel.receive((parent(place) + root) % size, padded[own])
    for child in reversed([*children(place, size)]):
        last = min(child + (child & -child), size)
        channel.send(padded[child * step : last * step], (child + root) % size)
    after, before = (channel.rank + 1) % size, (channel.rank - 1) % size
    for k in range(size - 1):
        out, into = (place - k) % size, (place - k - 1) % size
        parts[into][...] = channel.exchange(parts[out], after, before, parts[into])
    return padded


def gather_tree(channel: Channel, value: Any, root: int) -> list[Any] | None:
    """Return the values of all ranks, of one length, on the root.

    ⌈lg p⌉ rounds; the reverse of `bcast_tree`, with all values of a subtree in a
    message.
    """
    size = channel.size
    place = (channel.rank - root) % size
    found = [value]
    for child in children(place, size):
        count = min(child & -child, size - child)
        like = channel.several(value, count)
        message = channel.receive((child + root) % size, like)
        found += channel.split(message, count)
    if place:
        channel.send(channel.join(found), (parent(place) + root) % size)
        return None
    return [found[(rank - root) % size] for rank in range(size)]


def gather_linear(channel: Channel, value: Any, root: int) -> list[Any] | None:
    """Receive from each rank on the root: p - 1 rounds."""
    if channel.rank != root:
        channel.send(value, root)
        return None
    return [
        value if rank == root else channel.receive(rank, value)
        for rank in range(channel.size)
    ]


def scatter_tree(channel: Channel, values: Any, like: Any, root: int) -> Any:
    """Return this rank's value of those of the root, of one length.

    ⌈lg p⌉ rounds; the reverse of `gather_tree`.
    """
    size = channel.size
    place = (channel.rank - root) % size
    if place:
        count = min(place & -place, size - place)
        source = (parent(place) + root) % size
        message = channel.receive(source, channel.several(like, count))
        held = channel.split(message, count)
    else:
        held = [values[(k + root) % size] for k in range(size)]
    for child in reversed([*children(place, size)]):
        count = min(child & -child, size - child)
        part = held[child - place : child - place + count]
        channel.send(channel.join(part), (child + root) % size)
    return held[0]


def scatter_linear(channel: Channel, values: Any, like: Any, root: int) -> Any:
    """Send from the root to each rank: p - 1 rounds."""
    if channel.rank != root:
        return channel.receive(root, like)
    for rank in range(channel.size):
        if rank != root:
            channel.send(values[rank], rank)
    return values[root]
