"""A broadcast down many trees, packed so that no link has much more than others.

    tree 0, piece 0      1 ◄─ 0 ─► 3          every tree has its own root, and a piece
    tree 1, piece 1      1 ─► 2 ─► 3          of the buffer
                         0 ◄─ 1

Trees are minimum spanning trees by the loads of the links that earlier trees have left
(multiplicative weights: Garg and Könemann 1998). Pieces pass the edges of their trees
in the first slots of time in which all links of the route are free, those with the
longest way ahead first. In reverse the rounds are a reduction onto the roots, and both
together are an all-reduce, which approaches the bound of `sim.networks.cuts` for long
buffers if all links have equal rates (trees that fill the links exist: Edmonds 1973).
For unequal rates see `plans.slots`.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from dml.wire.plans.broadcasts import Broadcast, Sends

COPIES = (1, 2, 4)  # numbers of trees that are tried, in multiples of the ranks
SHARPNESS = (0.2, 1.0, 4.0)  # and exponents of the loads
FLOOR = 0.02  # least price of a link, so that short routes are preferred
LONGEST = 64  # slots of a message
PIECES = 16  # for each rank


Needs = tuple[list[tuple[int, int]], int]  # links with a bit for each slot, and slots


class Routes(NamedTuple):
    """Links and ports of messages between all ranks, by source and destination."""

    number: int  # of links and ports
    links: tuple[tuple[np.ndarray, ...], ...]  # numbers; the last: out port, in port
    seconds: tuple[tuple[np.ndarray, ...], ...]  # per byte, of each of them


def packed_broadcast(routes: Routes) -> Broadcast:
    """Return the broadcast by a packing or by the paths of a ring, the shorter one.

    Its pieces begin at different roots, its rounds are for the ranks of the routes.
    """
    size = len(routes.links)
    pieces = PIECES * size
    packings = [
        pack(routes, copies * size, sharpness)
        for copies in COPIES
        for sharpness in SHARPNESS
    ]
    best = min(packings, key=partial(most_used, routes))
    slots, rounds = scheduled(routes, ring(size), pieces)
    if most_used(routes, best) * pieces < slots:  # the packing may be shorter
        other = scheduled(routes, best, pieces)
        slots, rounds = min((slots, rounds), other, key=lambda found: found[0])
    return Broadcast(lambda size, pieces: rounds, lambda *sizes: pieces)


def ring(size: int) -> list[list[int]]:
    """Return the parents in the paths of a ring; the root is its own parent."""
    return [
        [rank if rank == root else (rank - 1) % size for rank in range(size)]
        for root in range(size)
    ]


def most_used(routes: Routes, trees: list[list[int]]) -> float:
    """Return the mean number of slots in which a tree occupies the most used link."""
    load = np.zeros(routes.number)
    for tree in trees:
        for parent, child in downwards(tree):
            load[routes.links[parent][child]] += routes.seconds[parent][child]
    return round(float(load.max()) / len(trees) / slot_seconds(routes), 6)


def slot_seconds(routes: Routes) -> float:
    """Return the seconds per byte of the fastest route."""
    size = len(routes.links)
    pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
    return min((float(routes.seconds[a][b].max()) for a, b in pairs), default=1.0)


def pack(routes: Routes, trees: int, sharpness: float) -> list[list[int]]:
    """Return the parent of each rank in each tree."""
    size = len(routes.links)
    if size == 1:
        return [[0]] * trees
    usage = np.zeros((size, size, routes.number))
    for source, dest in np.ndindex(size, size):
        if source != dest:
            used, seconds = routes.links[source][dest], routes.seconds[source][dest]
            usage[source, dest, used] = seconds
    load, found = np.zeros(routes.number), []
    for _ in range(trees):
        price = np.exp(sharpness * (load - load.max()) / usage.max()) + FLOOR
        cost_PxP = usage @ price
        parents = rooted(spanning_tree(cost_PxP + cost_PxP.T), cost_PxP)
        load += usage[tuple(np.transpose(downwards(parents)))].sum(0)
        found.append(parents)
    return found


def spanning_tree(cost_PxP: np.ndarray) -> list[list[int]]:
    """Return the neighbours of each rank in the cheapest spanning tree (Prim 1957)."""
    size = len(cost_PxP)
    neighbours: list[list[int]] = [[] for _ in range(size)]
    outside = np.ones(size, bool)
    outside[0] = False
    nearest, least = np.zeros(size, np.int64), cost_PxP[0].copy()
    for _ in range(size - 1):
        rank = int(np.where(outside, least, np.inf).argmin())
        near = int(nearest[rank])
        neighbours[rank].append(near)
        neighbours[near].append(rank)
        outside[rank] = False
        closer = outside & (cost_PxP[rank] < least)
        nearest[closer], least[closer] = rank, cost_PxP[rank][closer]
    return neighbours


def rooted(neighbours: list[list[int]], cost_PxP: np.ndarray) -> list[int]:
    """Return the parents for the root from which messages down the tree are cheapest.

    Args:
      neighbours: The tree.
      cost_PxP: Price of a message by source and destination.
    """
    order, parents = [0], [0] * len(neighbours)
    for rank in order:
        below = [other for other in neighbours[rank] if other != parents[rank]]
        for other in below:
            parents[other] = rank
        order += below
    change = np.zeros(len(neighbours))  # of the cost, with this rank as the root
    for rank in order[1:]:
        up = parents[rank]
        change[rank] = change[up] + cost_PxP[rank, up] - cost_PxP[up, rank]
    rank = root = int(change.argmin())
    above = root
    while True:  # the path from the new root to the old one turns round
        before = parents[rank]
        parents[rank] = above
        if before == rank:
            return parents
        rank, above = before, rank


def scheduled(
    routes: Routes, parents: list[list[int]], pieces: int
) -> tuple[int, tuple[Sends, ...]]:
    """Return the number of slots, and the rounds in which pieces pass the edges.

    Rounds have the order of their slots. Piece k has tree k modulo the number of trees.
    One piece for each tree at a time, edges are placed by their first free slots; of
    equal ones that with the most slots below it is first.
    """
    slot = slot_seconds(routes)
    needs = cache(partial(occupied, routes, slot=slot))
    below = [slots_below(tree, needs) for tree in parents]
    busy = [0] * routes.number  # a bit for each slot
    rounds: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for start in range(0, pieces, len(parents)):
        number = min(len(parents), pieces - start)
        waiting = [
            (0, -slots, start + k, parent, child)
            for k in range(number)
            for parent, child, slots in below[k][root_of(parents[k])]
        ]
        heapify(waiting)
        while waiting:
            at, order, piece, parent, child = waiting[0]
            links, length = needs(parent, child)
            free = first_free(busy, links, at)
            if free > at:
                heapreplace(waiting, (free, order, piece, parent, child))
                continue
            heappop(waiting)
            for one, mask in links:
                busy[one] |= mask << at
            rounds[at].append((parent, child, piece))
            for _, next_child, slots in below[piece - start][child]:
                entry = at + length, -slots, piece, child, next_child
                heappush(waiting, entry)
    found = []
    for at in sorted(rounds):
        source, dest, first = np.array(rounds[at]).T
        found.append(Sends(source, dest, first, np.ones_like(first)))
    return max((mask.bit_length() for mask in busy), default=0), tuple(found)


def slots_below(
    parents: list[int], needs: Callable[[int, int], Needs]
) -> dict[int, list[tuple[int, int, int]]]:
    """Return (parent, child, slots to the last rank below) by parent."""
    longest: dict[int, int] = defaultdict(int)
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for parent, child in reversed(downwards(parents)):
        slots = needs(parent, child)[1] + longest[child]
        longest[parent] = max(longest[parent], slots)
        found[parent].append((parent, child, slots))
    return found


def root_of(parents: list[int]) -> int:
    """Return the root of a tree, which is its own parent."""
    return next(rank for rank, parent in enumerate(parents) if rank == parent)


def occupied(routes: Routes, source: int, dest: int, slot: float) -> Needs:
    """Return the links and ports of a message, and the number of its slots.

    A rank sends and receives at once only if both begin in one slot: while a message
    over a slow link is in transit, its ends do not begin another one.
    """
    links, seconds = routes.links[source][dest], routes.seconds[source][dest]
    slots = np.ceil(seconds / slot * (1 - 1e-9))
    lengths = np.clip(slots, 1, LONGEST).astype(int).tolist()
    needs = [
        (number, (1 << length) - 1)
        for number, length in zip(links.tolist(), lengths, strict=True)
    ]
    waits = (1 << max(lengths)) - 2
    other = routes.links[dest][source].tolist()[-2:]  # the other ports of both ends
    needs += [(number, waits) for number in other if waits]
    return needs, max(lengths)


def first_free(busy: list[int], needs: list[tuple[int, int]], earliest: int) -> int:
    """Return the first slot from which all links and ports are free."""
    taken = 0
    for number, mask in needs:
        used = busy[number] >> earliest
        while mask:
            bit = mask & -mask
            taken |= used >> (bit.bit_length() - 1)
            mask ^= bit
    return earliest + (~taken & (taken + 1)).bit_length() - 1


def downwards(parents: list[int]) -> list[tuple[int, int]]:
    """Return the edges of a tree, from parent to child, in the order of their depth."""
    children = defaultdict(list)
    for child, parent in enumerate(parents):
        if parent != child:
            children[parent].append(child)
    order, edges = [root_of(parents)], []
    for rank in order:
        edges += [(rank, child) for child in children[rank]]
        order += children[rank]
    return edges
