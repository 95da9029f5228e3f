"""BATCH: graphs to be cut: nodes, labels, and what it costs to part them.

A photograph's name or a seed in, a Graph out; volume, entities and dimacs make others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.types import BadInput

UNKNOWN = -1  # as a node's true label
PHOTOGRAPHS = ("china", "flower")  # scikit-learn's own, 427 by 640
CLIP = 1.5  # the most that a point's colour costs as a label
GRAIN = 0.25  # noise of a photograph, of the brightest
FINEST = 1 / 255  # spread of a label's colours
NOISE = 1.0  # of a generated picture, in steps from one label to the next


class Graph(NamedTuple):
    """Nodes that edges join to one another, and to labels.

    To give the ends of an edge different labels, or its node another label than that
    of a terminal, costs its weight. A node whose label is given has a terminal edge
    of a large weight.
    """

    nodes: int
    labels: int
    pairs: np.ndarray  # Px2 int32, u < v, each pair once
    pair_weights: np.ndarray  # float32
    terminals: np.ndarray  # Tx2 int32: node, label
    terminal_weights: np.ndarray  # float32
    truth: np.ndarray | None = None  # int8, a node's label or UNKNOWN
    shape: tuple[int, ...] = ()  # of a picture or a volume: nodes are in C order
    picture: np.ndarray | None = None  # float32, nodes by 1 (grey) or 3 (colours)
    names: tuple[str, ...] = ()  # of the labels
    constant: float = 0.0  # what every cut costs besides its edges


def checked(graph: Graph) -> Graph:
    """Return the graph, where it can be cut."""
    pairs, terminals = graph.pairs, graph.terminals
    if not len(pairs):
        raise BadInput(
            "expected a graph with edges between nodes, got none; pass one with edges"
        )
    if graph.labels < 2 or not len(terminals):
        raise BadInput(
            f"expected terminals of 2 labels or more, got {len(terminals)} terminals "
            f"of {graph.labels} labels; give some nodes their labels"
        )
    for name, found, count in (
        ("edges between nodes", pairs, graph.nodes),
        ("the nodes of terminals", terminals[:, 0], graph.nodes),
        ("the labels of terminals", terminals[:, 1], graph.labels),
    ):
        if found.min() < 0 or found.max() >= count:
            raise BadInput(
                f"expected {name} from 0 to {count - 1}, got {found.min()} to "
                f"{found.max()}; number them from 0"
            )
    if (pairs[:, 0] >= pairs[:, 1]).any():
        u, v = pairs[pairs[:, 0] >= pairs[:, 1]][0]
        raise BadInput(f"expected edges u < v, got {u}, {v}; swap or remove it")
    for weights in (graph.pair_weights, graph.terminal_weights):
        if not (np.isfinite(weights) & (weights >= 0)).all():
            bad = weights[~(np.isfinite(weights) & (weights >= 0))][0]
            raise BadInput(f"expected weights of 0 or more, got {bad}; correct it")
    return graph


def grid(shape: Sequence[int]) -> np.ndarray:
    """Return the pairs of nodes of a grid that lie side by side, Px2."""
    nodes = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    sides = []
    for axis in range(len(shape)):
        beside = np.moveaxis(nodes, axis, 0)
        sides.append(np.stack([beside[:-1].ravel(), beside[1:].ravel()], axis=1))
    return np.concatenate(sides)


def contrast(pairs: np.ndarray, picture: np.ndarray, smoothness: float) -> np.ndarray:
    """Return weights of pairs: smoothness · exp(-d² / 2σ²), σ² the mean of all d².

    d is how far apart a pair's colours are: an edge of the picture is cheap to cut.
    """
    between = np.square(picture[pairs[:, 0]] - picture[pairs[:, 1]]).sum(axis=1)
    spread = float(between.mean()) or 1.0  # one colour: no edge is cheaper
    return (smoothness * np.exp(-between / (2 * spread))).astype(np.float32)


def terminals(costs_NxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and weights that make a node's labels cost that, but for a constant.

    A label costs the weights of the others' edges, so its own is what it costs less
    than the dearest, which needs none.
    """
    weights_NxK = costs_NxK.max(axis=1, keepdims=True) - costs_NxK
    node, label = np.nonzero(weights_NxK)
    ends = np.stack([node, label], axis=1).astype(np.int32)
    return ends, weights_NxK[node, label].astype(np.float32)


def pictured(
    picture: np.ndarray,
    shape: Sequence[int],
    costs_NxK: np.ndarray,
    smoothness: float,
) -> Graph:
    """Make the graph of a picture's points, joined to those beside them."""
    pairs = grid(shape)
    weights = contrast(pairs, picture, smoothness)
    return checked(
        Graph(
            *(len(picture), costs_NxK.shape[1], pairs, weights, *terminals(costs_NxK)),
            shape=tuple(shape),
            picture=picture.astype(np.float32),
        )
    )


def unlikely(picture: np.ndarray, truth: np.ndarray, labels: int) -> np.ndarray:
    """Return nodes' costs as each label: -log of its normal law, but for a constant.

    A law's mean and spread are those of the nodes that have the label in truth.
    """
    costs_NxK = np.full((len(truth), labels), np.inf)
    for label in np.unique(truth):
        own = picture[truth == label].astype(np.float64)
        spread = np.maximum(own.std(axis=0), FINEST)
        away = (picture - own.mean(axis=0)) / spread
        costs_NxK[:, label] = (0.5 * np.square(away) + np.log(spread)).sum(axis=1)
    costs_NxK -= costs_NxK.min(axis=1, keepdims=True)
    return np.minimum(costs_NxK, CLIP)


def photograph(
    name: str, every: int = 2, smoothness: float = 1.0, seed: int = 0
) -> Graph:
    """Return one of PHOTOGRAPHS, with drawn noise, to be cut in ground and figure.

    Truth is what two-means makes of the colours without noise; the figure, label 1, is
    the mean whose points lie nearer to the middle. Every so many-th point is taken.
    """
    if name not in PHOTOGRAPHS or every < 1:
        raise BadInput(
            f"expected one of {', '.join(PHOTOGRAPHS)} and every 1st point or fewer, "
            f"got {name!r} and {every=}; pass such ones"
        )
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_sample_image

    colours = load_sample_image(f"{name}.jpg")[::every, ::every].astype("f4") / 255
    shape, points_Nx3 = colours.shape[:2], colours.reshape(-1, 3)
    found = KMeans(2, n_init=4, random_state=seed).fit_predict(points_Nx3)
    middle = (np.array(shape) - 1) / 2
    away = np.linalg.norm(np.argwhere(np.ones(shape)) - middle, axis=1)
    figure = int(away[found == 1].mean() < away[found == 0].mean())
    truth = (found == figure).astype(np.int8)
    drawn = np.random.default_rng(seed).standard_normal(points_Nx3.shape)
    seen_Nx3 = np.clip(points_Nx3 + GRAIN * drawn, 0, 1)
    made = pictured(seen_Nx3, shape, unlikely(seen_Nx3, truth, 2), smoothness)
    return made._replace(truth=truth, names=("ground", "figure"))


def generated(
    shape: Sequence[int], labels: int, seed: int, smoothness: float = 1.0
) -> Graph:
    """Make a noisy picture of as many patches as labels, nearest to drawn centres."""
    if min(shape, default=0) < 1 or np.prod(shape) < labels or labels < 2:
        raise BadInput(
            f"expected 2 labels or more, and a point for each, got {labels=} and "
            f"{shape=}; pass a larger shape"
        )
    rng = np.random.default_rng(seed)
    points = np.argwhere(np.ones(shape)).astype(np.float64)
    centres = points[rng.choice(len(points), labels, replace=False)]
    squares_NxK = np.square(points[:, None] - centres).sum(axis=-1)
    truth = squares_NxK.argmin(axis=1).astype(np.int8)
    grey = truth + NOISE * rng.standard_normal(len(points))
    costs_NxK = 0.5 * np.square(grey[:, None] - np.arange(labels)) / NOISE**2
    made = pictured(grey[:, None], shape, costs_NxK, smoothness)
    even = np.full_like(made.pair_weights, smoothness)  # such noise has no edges
    return made._replace(pair_weights=even, truth=truth)
