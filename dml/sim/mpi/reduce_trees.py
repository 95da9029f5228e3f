"""Reductions and scans. The operands keep the order of ranks, except around rings."""

from typing import Any

from dml.sim.mpi import vectorised
from dml.sim.mpi.channel import Channel
from dml.sim.mpi.exchanges import allgather_ring
from dml.sim.mpi.trees import bcast_linear, bcast_tree, gather_linear
from dml.wire.plans.topology import children, parent


def reduce_tree(
    channel: Channel, value: Any, op: Any, root: int, commutes: bool
) -> Any:
    """Return the reduction of all values on the root.

    The tree of `bcast_tree` from its leaves, with the root 0 if the operation does not
    commute: ⌈lg p⌉ rounds, and one more to another root.
    """
    size = channel.size
    top = root if commutes else 0
    place = (channel.rank - top) % size
    value = channel.private(value)
    for child in children(place, size):
        received = channel.receive((child + top) % size, value)
        value = channel.combine(op, value, received)
    if place:
        channel.send(value, (parent(place) + top) % size)
    if top != root:
        if channel.rank == top:
            channel.send(value, root)
        elif channel.rank == root:
            value = channel.receive(top, value)
    return value if channel.rank == root else None


def reduce_linear(
    channel: Channel, value: Any, op: Any, root: int, commutes: bool
) -> Any:
    """Receive all values on the root, and combine them there: p - 1 rounds."""
    values = gather_linear(channel, value, root)
    if values is None:
        return None
    total = channel.private(values[-1])
    for left in reversed(values[:-1]):
        total = channel.combine(op, left, total)
    return total


def allreduce_doubling(channel: Channel, value: Any, op: Any) -> Any:
    """Return the reduction on all ranks, by exchanges at the distances 1, 2, 4, ….

    The first 2(p - q) ranks are folded to pairs, where q is the largest power of two
    up to p: lg q rounds of n words, and two more if p is not q.
    """
    if (result := vectorised.allreduce(channel, value, op)) is not None:
        return result
    rank, size = channel.rank, channel.size
    power = 1 << size.bit_length() - 1
    extra = size - power
    value = channel.private(value)
    place = rank // 2 if rank < 2 * extra else rank - extra
    if rank < 2 * extra:
        if not rank % 2:
            channel.send(value, rank + 1)
            return channel.receive(rank + 1, value)
        value = channel.combine(op, channel.receive(rank - 1, value), value)
    step = 1
    while step < power:
        other = place ^ step
        peer = 2 * other + 1 if other < extra else other + extra
        received = channel.exchange(value, peer, peer, value)
        if other < place:
            value = channel.combine(op, received, value)
        else:
            value = channel.combine(op, value, received)
        step *= 2
    if rank < 2 * extra:
        channel.send(value, rank - 1)
    return value


def allreduce_tree(channel: Channel, value: Any, op: Any) -> Any:
    """Reduce to rank 0, and broadcast: 2⌈lg p⌉ rounds."""
    total = reduce_tree(channel, value, op, 0, True)
    return bcast_tree(channel, value if total is None else total, 0)


def allreduce_linear(channel: Channel, value: Any, op: Any) -> Any:
    """Reduce on rank 0, and send the result to all: 2(p - 1) rounds."""
    total = reduce_linear(channel, value, op, 0, True)
    return bcast_linear(channel, value if total is None else total, 0)


def cut(length: int, parts: int) -> list[int]:
    """Return the ends of nearly equal parts; the first is 0."""
    return [length * k // parts for k in range(parts + 1)]


def reduce_scatter_ring(channel: Channel, value: Any, op: Any, ends: list[int]) -> Any:
    """Return this rank's part of the reduction, by p - 1 exchanges with neighbours.

    The operands of part k are combined in the order of ranks k + 1, k + 2, …, k.
    """
    rank, size = channel.rank, channel.size
    after, before = (rank + 1) % size, (rank - 1) % size
    parts = [value[ends[k] : ends[k + 1]] for k in range(size)]
    held = parts[before]
    for k in range(size - 1):
        into = (rank - k - 2) % size
        received = channel.exchange(held, after, before, parts[into])
        held = channel.combine(op, parts[into], received)
    return held if size > 1 else channel.private(held)


def reduce_scatter_halving(
    channel: Channel, value: Any, op: Any, ends: list[int]
) -> Any:
    """Return this rank's part of the reduction, by exchanges of halves.

    Ranks are folded as in `allreduce_doubling`; a place holds the parts of its ranks.
    lg q rounds, 2n words at most.
    """
    rank, size = channel.rank, channel.size
    power = 1 << size.bit_length() - 1
    extra = size - power
    value = channel.private(value)
    edges = [ends[2 * k if k < extra else k + extra] for k in range(power)] + [ends[-1]]
    if rank < 2 * extra:
        if not rank % 2:
            channel.send(value, rank + 1)
            return channel.receive(rank + 1, value[ends[rank] : ends[rank + 1]])
        value = channel.combine(op, channel.receive(rank - 1, value), value)
    place = rank // 2 if rank < 2 * extra else rank - extra
    low, high = 0, power
    while high - low > 1:
        middle = (low + high) // 2
        half = middle - low
        upper = place >= middle
        other = place - half if upper else place + half
        peer = 2 * other + 1 if other < extra else other + extra
        kept = (middle, high) if upper else (low, middle)
        sent = (low, middle) if upper else (middle, high)
        mine = value[edges[kept[0]] : edges[kept[1]]]
        out = value[edges[sent[0]] : edges[sent[1]]]
        received = channel.exchange(out, peer, peer, mine)
        channel.combine(op, received, mine)
        low, high = kept
    if rank < 2 * extra:
        channel.send(value[ends[rank - 1] : ends[rank]], rank - 1)
    return value[ends[rank] : ends[rank + 1]]


def allreduce_halving(channel: Channel, value: Any, op: Any) -> Any:
    """Reduce-scatter by halving, then all-gather by doubling (Rabenseifner 2004).

    2 lg q rounds, 2n(q - 1)/q words.
    """
    rank, size, length = channel.rank, channel.size, len(value)
    power = 1 << size.bit_length() - 1
    extra = size - power
    if length < power:
        return allreduce_doubling(channel, value, op)
    edges = cut(length, power)
    ends = []
    for k in range(power):  # the first rank of a pair has no part
        ends += [edges[k]] * (2 if k < extra else 1)
    ends.append(length)
    total = channel.private(value)
    own = reduce_scatter_halving(channel, value, op, ends)
    if rank < 2 * extra and not rank % 2:
        return channel.receive(rank + 1, total)
    place = rank // 2 if rank < 2 * extra else rank - extra
    total[edges[place] : edges[place + 1]] = own
    step = 1
    while step < power:
        other = place ^ step
        peer = 2 * other + 1 if other < extra else other + extra
        mine, theirs = place & -step, other & -step
        out = total[edges[mine] : edges[mine + step]]
        into = total[edges[theirs] : edges[theirs + step]]
        into[...] = channel.exchange(out, peer, peer, into)
        step *= 2
    if rank < 2 * extra:
        channel.send(total, rank - 1)
    return total


def allreduce_ring(channel: Channel, value: Any, op: Any) -> Any:
    """Reduce-scatter and all-gather around a ring: 2(p - 1) rounds, 2n words."""
    size = channel.size
    if channel.nbytes(value) < size or len(value) < size:
        return allreduce_doubling(channel, value, op)
    ends = cut(len(value), size)
    own = reduce_scatter_ring(channel, value, op, ends)
    total = channel.private(value)
    parts = [total[ends[k] : ends[k + 1]] for k in range(size)]
    found = allgather_ring(channel, own, parts)
    for part, into in zip(found, parts, strict=True):
        into[...] = part
    return total


def scan_doubling(channel: Channel, value: Any, op: Any, exclusive: bool) -> Any:
    """Return the reduction of this and all earlier ranks; ⌈lg p⌉ rounds of n words.

    If exclusive, that of the earlier ranks; None on rank 0.
    """
    rank, size = channel.rank, channel.size
    total = channel.private(value)  # of the ranks that differ in lower bits
    result = None if exclusive else channel.private(value)
    step = 1
    while step < size:
        peer = rank ^ step
        if peer < size:
            received = channel.exchange(total, peer, peer, total)
            if peer < rank:
                if result is None:
                    result = channel.private(received)
                else:
                    result = channel.combine(op, received, result)
                total = channel.combine(op, received, total)
            else:
                total = channel.combine(op, total, received)
        step *= 2
    return result


def scan_linear(channel: Channel, value: Any, op: Any, exclusive: bool) -> Any:
    """Pass the reduction from rank to rank: p - 1 rounds."""
    rank, size = channel.rank, channel.size
    before = channel.receive(rank - 1, value) if rank else None
    total = channel.private(value)
    if before is not None:
        total = channel.combine(op, before, total)
    if rank + 1 < size:
        channel.send(total, rank + 1)
    return before if exclusive else total
