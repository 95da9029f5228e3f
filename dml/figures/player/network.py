"""The links of a network in the player: places, routes of messages and utilization.

    torus of 2 or 3 sides    other networks
    -0-1-2-                  ranks on a circle, their routers inside of it; routers
     | | |                   without ranks are the closer to the centre, the more
    -3-4-5-                  links are between them and the ranks

A router with one rank is drawn as this rank. A link around a torus leaves the grid at
one edge and enters it at the other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import Message

INSIDE = 0.66  # radius of routers with several ranks, of that of ranks
DIAGONAL = np.array([0.8, -0.65])  # of a cell of the grid: the third side of a torus


class Drawing(NamedTuple):
    """Routers that routes between the ranks of a run pass, and all links of these.

    Attributes:
      places: x and y of each node, from -1 to 1; nodes are ranks, then routers.
      names: Names of nodes.
      at: Node of the router of each rank.
      links: Tail and head of each link; and x and y of a step from the tail, if the
        link goes around the torus.
      numbers: Number of each link in the network.
      room: Distance of the next rank to the right in a grid; 0: a circle.
    """

    places: np.ndarray
    names: list[str]
    at: list[int]
    links: list[list[float]]
    numbers: np.ndarray
    room: float


def draw(network: Any, size: int) -> Drawing | None:
    """Return the drawing of a network with `size` ranks, None without links."""
    source, dest = np.indices((size, size)).reshape(2, -1)
    crossed = np.unique(network.paths(source, dest).links)
    if not len(crossed):
        return None
    at, ends = network.at(np.arange(size)), network.ends()
    passed = np.unique(np.concatenate([at, ends[crossed].reshape(-1)]))
    numbers = np.flatnonzero(np.isin(ends, passed).all(1))
    ends = ends[numbers]
    seats = {
        router: np.flatnonzero(at == router).tolist() for router in passed.tolist()
    }
    routers = [router for router, ranks in seats.items() if len(ranks) != 1]
    node = {router: ranks[0] for router, ranks in seats.items() if len(ranks) == 1}
    node |= {router: size + k for k, router in enumerate(routers)}
    joined = [[node[tail], node[head]] for tail, head in ends.tolist()]
    links: list[list[float]] = [[*each] for each in joined]
    names = [f"rank {rank}" for rank in range(size)]
    for router in routers:
        ranks = seats[router]
        names.append(f"ranks {ranks[0]}-{ranks[-1]}" if ranks else f"router {router}")
    nodes = [node[router] for router in at.tolist()]
    sides = [side for side in getattr(network, "dims", ()) if side > 1]
    if 2 <= len(sides) <= 3:
        places, steps = grid(sides, np.array([*range(size), *routers]), ends)
        links = [link + step for link, step in zip(links, steps, strict=True)]
        room = 2 / sides[1] * (DIAGONAL[0] / sides[2] if len(sides) == 3 else 1)
    else:
        places, room = circle(nodes, joined, len(names)), 0.0
    return Drawing(places, names, nodes, links, numbers, room)


def grid(
    sides: Sequence[int], routers: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, list[list[float]]]:
    """Return the places of routers, and the steps of links around a torus."""
    spots = np.stack(np.unravel_index(routers, sides), 1)
    cell = 2 / np.array(sides[1::-1])
    axes = np.diag(cell)[::-1]  # rows downwards, columns to the right
    if len(sides) == 3:
        axes = np.concatenate([axes, [cell * DIAGONAL / sides[2]]])
    centre = (np.array(sides) - 1) / 2
    places = (spots - centre) @ axes
    tail, head = (np.stack(np.unravel_index(end, sides), 1) for end in ends.T)
    moved = head - tail
    steps, around = -np.sign(moved) @ axes / 2, (np.abs(moved) > 1).any(1)
    largest = np.abs((tail - centre) @ axes + steps).max()
    places, steps = places / largest, (steps / largest).round(4).tolist()
    return places, [
        step if far else [] for step, far in zip(steps, around, strict=True)
    ]


def circle(at: Sequence[int], links: Sequence[Sequence[int]], count: int) -> np.ndarray:
    """Return the places of `count` nodes, of which the first are ranks on a circle."""
    size = len(at)
    ranks = np.exp(2j * np.pi * np.arange(size) / size)
    places, hops = np.zeros(count, complex), np.full(count, -1)
    np.add.at(places, at, ranks)  # routers have the mean direction of their ranks
    hops[at] = 0
    tails, heads = np.array(links).T
    while (new := (hops[tails] >= 0) & (hops[heads] < 0)).any():
        np.add.at(places, heads[new], places[tails[new]])
        hops[heads[new]] = hops.max() + 1
    farthest = hops.max()
    steps = farthest + 0.6 * (np.sum(hops == farthest) > 1)  # one router is the centre
    angles = np.round(np.angle(np.round(places, 6)) / np.pi, 6) % 2
    for hop in range(1, farthest + 1):  # around the circle in this order
        level = np.flatnonzero(hops == hop)
        order = level[np.argsort(angles[level], kind="stable")]
        angles[order] = (2 * np.arange(len(level)) + 1) / len(level) - 1 / size
    places = INSIDE * (1 - np.maximum(hops, 0) / steps) * np.exp(1j * np.pi * angles)
    places[:size] = ranks
    places *= -1j  # rank 0 is at the top
    return np.stack([places.real, places.imag], 1)


def routes(
    network: Any, drawing: Drawing, messages: Sequence[Message]
) -> list[list[int]]:
    """Return the links of each message, in order, by their places in the drawing."""
    pairs = np.array([(one.source, one.dest) for one in messages]).reshape(-1, 2)
    paths = network.paths(*pairs.T)
    links = np.searchsorted(drawing.numbers, paths.links).tolist()
    return [
        links[start:stop]
        for start, stop in zip(paths.starts, paths.starts[1:], strict=False)
    ]


def export(
    network: Any, size: int, messages: Sequence[Message], seconds: float
) -> dict[str, Any] | None:
    """Return the drawing and the links of each message as data of the page.

    The utilization of a link is the share of the run for which it transfers bytes.
    """
    drawing = draw(network, size) if network is not None else None
    if drawing is None:
        return None
    links = routes(network, drawing, messages)
    nbytes = np.zeros(len(drawing.links))
    for message, route in zip(messages, links, strict=True):
        nbytes[route] += message.nbytes
    used = nbytes * np.asarray(network.links().beta)[drawing.numbers] / seconds
    return {
        "room": round(drawing.room, 4),
        "places": drawing.places.round(4).tolist(),
        "names": drawing.names,
        "at": drawing.at,
        "links": drawing.links,
        "used": used.round(4).tolist(),
        "routes": links,
    }
