"""Broadcasts down trees on unequal links, by messages that all take one slot of time.

    links 0 - 1: β, 1 - 2: 3β       slot 0    0 ─► 1: pieces 0 1 2
                                    slot 1    0 ─► 1: pieces 3 4 5   1 ─► 2: piece 0

Ranks wait for their messages. A message over a faster link has more pieces, so that no
rank waits longer than others. The trees are those of `plans.packing`; a linear program
has the share of the buffer that each one carries. A tree has adjacent pieces, which
ranks pass on in their order. The messages of a slot are a matching of senders and
receivers, in which the links with most messages left are first: if all pieces were
there, a matching of all of the most used ports would exist (Birkhoff 1946).
"""

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np

from dml.wire.plans.broadcasts import Broadcast, Sends
from dml.wire.plans.packing import (
    SHARPNESS,
    Routes,
    downwards,
    pack,
    packed_broadcast,
    root_of,
)

COPIES = (1, 4, 16)  # numbers of trees that may have a share, in multiples of the ranks
MOST = 256  # trees
PRICES = (0.001, 0.01, 0.1, 0.5)  # of the mean use of links, relative to the largest
SLOTS = (300, 600)  # in which the most used link is occupied
FEW = 16  # ranks up to which all prices and numbers of slots are tried
LEAST = 1e-3  # share of a tree
FINEST = 16  # pieces of a message over the slowest route, at most
POWER = 64  # of the messages left on a link, relative to the largest number
FURTHER = 0.3  # weight of the links further down the tree

Tree = tuple[int, ...]  # the parent of each rank
Edge = tuple[int, int]


def packed_broadcasts(routes: Routes) -> list[Broadcast]:
    """Return broadcasts for a network; which one is the fastest depends on the buffer.

    The first one has messages of single pieces. There are others if routes have unequal
    seconds per byte.
    """
    found, slots = [packed_broadcast(routes)], whole_slots(routes)
    size = len(routes.links)
    rates = [slots.seconds[a][b][-1] for a, b in np.ndindex(size, size) if a != b]
    if not rates or max(rates) <= min(rates) * (1 + 1e-6):
        return found
    usage_LxT, trees = many_trees(slots)
    few = size <= FEW
    for price in PRICES if few else PRICES[1:2]:
        seconds, parts = shares(usage_LxT, price)
        kept = {trees[k]: parts[k] for k in np.flatnonzero(parts > LEAST)}
        slot, number = equal_messages(slots, [*kept])
        for occupied in SLOTS if few else SLOTS[1:]:
            pieces = occupied * slot / seconds
            lengths = {tree: round(pieces * part) for tree, part in kept.items()}
            found.append(matched(slots, lengths, number))
    return found


def whole_slots(routes: Routes) -> Routes:
    """Return routes whose links and ports are all occupied for the slowest one's time.

    The links of the way back are added, with numbers of their own: in reverse order the
    rounds are a reduction.
    """
    size, number = len(routes.links), routes.number
    links: list[tuple[np.ndarray, ...]] = []
    seconds: list[tuple[np.ndarray, ...]] = []
    for source in range(size):
        both, slowest = [], []
        for dest in range(size):
            there, back = routes.links[source][dest], routes.links[dest][source]
            both.append(np.append(back[:-2] + number, there))
            ways = routes.seconds[source][dest], routes.seconds[dest][source]
            slow = max(float(way.max()) for way in ways)
            slowest.append(np.full(len(both[-1]), slow))
        links.append(tuple(both))
        seconds.append(tuple(slowest))
    return Routes(2 * number, tuple(links), tuple(seconds))


def many_trees(routes: Routes) -> tuple[np.ndarray, list[Tree]]:
    """Return trees of several packings, and the seconds per byte by link and tree."""
    size = len(routes.links)
    packings = [
        pack(routes, copies * size, sharpness)
        for copies in COPIES
        if copies == 1 or copies * size <= MOST
        for sharpness in SHARPNESS
    ]
    trees = [*dict.fromkeys(tuple(tree) for packing in packings for tree in packing)]
    usage_LxT = np.zeros((routes.number, len(trees)))
    for k, tree in enumerate(trees):
        for parent, child in downwards([*tree]):
            usage_LxT[routes.links[parent][child], k] += routes.seconds[parent][child]
    return usage_LxT, trees


def shares(usage_LxT: np.ndarray, price: float) -> tuple[float, np.ndarray]:
    """Return the seconds per byte of the most used link, and the share of each tree.

    A linear program: the least seconds, plus `price` times the mean of all links. At
    most one tree for each link has a share.
    """
    from scipy.optimize import linprog

    links, trees = usage_LxT.shape
    unit = usage_LxT.max()
    most = np.append(usage_LxT / unit, np.full((links, 1), -1.0), 1)  # last: seconds
    cost = np.append(price * usage_LxT.mean(0) / unit, 1.0)
    whole = np.append(np.ones((1, trees)), [[0.0]], 1)
    found = linprog(cost, most, np.zeros(links), whole, [1.0]).x
    return float(found[-1] * unit), found[:-1]


def equal_messages(routes: Routes, trees: list[Tree]) -> tuple[float, dict[Edge, int]]:
    """Return the seconds of a slot for pieces of a byte, and the pieces of messages.

    The slot is chosen so that messages fill it.
    """
    edges = sorted({edge for tree in trees for edge in downwards([*tree])})
    seconds = np.array([routes.seconds[a][b][-1] for a, b in edges])
    slots = seconds.max() * np.arange(1, FINEST + 1)
    pieces_SxE = np.floor(slots[:, None] / seconds * (1 + 1e-9))
    unused = 1 - (pieces_SxE * seconds / slots[:, None]).mean(1)
    best = int(np.round(unused, 6).argmin())
    number = dict(zip(edges, pieces_SxE[best].astype(int).tolist(), strict=True))
    return float(slots[best]), number


def matched(
    routes: Routes, lengths: dict[Tree, int], number: dict[Edge, int]
) -> Broadcast:
    """Return the broadcast in which each slot has the most urgent messages.

    Args:
      routes: Routes between the ranks; a message occupies all of its links for a slot.
      lengths: Pieces of each tree.
      number: Pieces of a message, by edge.
    """
    links = {(a, b): routes.links[a][b] for a, b in number}
    left = np.zeros(routes.number)  # messages over each link
    for parents, length in lengths.items():
        for edge in downwards([*parents]):
            left[links[edge]] += -(-length // number[edge])
    sizes, first = [*lengths.values()], np.cumsum([0, *lengths.values()]).tolist()
    below = [edges_below(tree, links) for tree in lengths]
    sent: dict[tuple[int, Edge], int] = defaultdict(int)  # pieces
    ready: dict[Edge, list[tuple[int, float, int, int, int]]] = defaultdict(list)

    def begin(tree: int, rank: int, pieces: int) -> None:
        """Add the messages of a rank that has the first pieces of a tree."""
        for edge, height, _ in below[tree][rank]:
            start = sent[tree, edge]
            end = min(start + number[edge], sizes[tree])
            while start < end <= pieces:
                entry = -height, start / sizes[tree], tree, start, end
                heappush(ready[edge], entry)
                start, end = end, min(end + number[edge], sizes[tree])
            sent[tree, edge] = start

    further = {
        (tree, edge): beyond
        for tree, ranks in enumerate(below)
        for edges in ranks.values()
        for edge, _, beyond in edges
    }
    for tree, parents in enumerate(lengths):
        begin(tree, root_of([*parents]), sizes[tree])
    rounds = []
    while waiting := [edge for edge, entries in ready.items() if entries]:
        urgency = (left / left.max()) ** POWER
        urgencies = {
            edge: float(urgency[links[edge]].max())
            + FURTHER * float(urgency[further[ready[edge][0][2], edge]].max(initial=0))
            for edge in waiting
        }
        sends, arrived = [], []
        for edge in matching(urgencies, links):
            _, _, tree, start, end = heappop(ready[edge])
            left[links[edge]] -= 1
            sends.append((*edge, first[tree] + start, end - start))
            arrived.append((tree, edge[1], end))
        for each in arrived:
            begin(*each)
        rounds.append(Sends(*np.array(sends).T))
    return Broadcast(lambda size, pieces: tuple(rounds), lambda *sizes: first[-1])


def edges_below(
    tree: Tree, links: dict[Edge, np.ndarray]
) -> dict[int, list[tuple[Edge, int, np.ndarray]]]:
    """Return (edge, height of the tree below it, links of that tree) by parent."""
    height: dict[int, int] = defaultdict(int)
    further: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(0, np.int64))
    found: dict[int, list[tuple[Edge, int, np.ndarray]]] = defaultdict(list)
    for parent, child in reversed(downwards([*tree])):
        edge = parent, child
        found[parent].append((edge, height[child], further[child]))
        height[parent] = max(height[parent], height[child] + 1)
        further[parent] = np.union1d(further[parent], links[edge])
        further[parent] = np.union1d(further[parent], further[child])
    return found


def matching(urgencies: dict[Edge, float], links: dict[Edge, np.ndarray]) -> list[Edge]:
    """Return edges without common links, those of a largest matching first."""
    from scipy.optimize import linear_sum_assignment

    size = 1 + max(max(edge) for edge in urgencies)
    urgency_PxP = np.zeros((size, size))
    for edge, urgency in urgencies.items():
        urgency_PxP[edge] = urgency
    source, dest = linear_sum_assignment(-urgency_PxP)
    pairs = {*zip(source.tolist(), dest.tolist(), strict=True)}
    occupied: set[int] = set()
    found = []
    for edge in sorted(urgencies, key=lambda one: (one not in pairs, -urgencies[one])):
        used = links[edge].tolist()
        if occupied.isdisjoint(used):
            occupied.update(used)
            found.append(edge)
    return found
