"""Graphs for minimum cuts: nodes, labels, weighted edges and terminals.

This module makes graphs of photographs and of generated pictures; other graphs are in
`brain_volume`, `entities` and `dimacs`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.types import BadInput

UNKNOWN = -1  # true label of a node whose label is not known
PHOTOGRAPHS = ("china", "flower")  # images of scikit-learn, 427 by 640
MAX_COST = 1.5  # largest cost of a label at a node; larger costs are clipped
PHOTOGRAPH_NOISE = 0.25  # standard deviation; colours are 0 to 1
MIN_DEVIATION = 1 / 255  # least standard deviation of the colours of a label
GENERATED_NOISE = 1.0  # standard deviation; the grey level of a label is its number


class WeightedGraph(NamedTuple):
    """A weighted graph with edges between nodes and from nodes to labels (terminals).

    The cost of a labelling is the sum of the weights of edges whose nodes have
    different labels, and of terminals whose node does not have the terminal's label,
    plus the constant. A node with a known label has a terminal of large weight.
    """

    nodes: int
    labels: int
    pairs: np.ndarray  # Px2 int32, u < v, each pair once
    pair_weights: np.ndarray  # float32
    terminals: np.ndarray  # Tx2 int32: node, label
    terminal_weights: np.ndarray  # float32
    truth: np.ndarray | None = None  # int8: true label of each node, or UNKNOWN
    shape: tuple[int, ...] = ()  # shape of a picture or volume; nodes are in C order
    picture: np.ndarray | None = None  # float32, Nx1 (grey) or Nx3 (colours)
    names: tuple[str, ...] = ()  # names of labels
    constant: float = 0.0  # cost added to every labelling


def validate(graph: WeightedGraph) -> WeightedGraph:
    """Return the graph, or raise BadInput if it is malformed."""
    pairs, terminals = graph.pairs, graph.terminals
    if not len(pairs):
        raise BadInput(
            "expected edges between nodes, got none; pass a graph with edges"
        )
    if graph.labels < 2 or not len(terminals):
        raise BadInput(
            f"expected terminals of 2 labels or more, got {len(terminals)} terminals "
            f"of {graph.labels} labels; add terminals"
        )
    for name, values, count in (
        ("edges between nodes", pairs, graph.nodes),
        ("the nodes of terminals", terminals[:, 0], graph.nodes),
        ("the labels of terminals", terminals[:, 1], graph.labels),
    ):
        if values.min() < 0 or values.max() >= count:
            raise BadInput(
                f"expected {name} from 0 to {count - 1}, got {values.min()} to "
                f"{values.max()}; number them from 0"
            )
    if (pairs[:, 0] >= pairs[:, 1]).any():
        u, v = pairs[pairs[:, 0] >= pairs[:, 1]][0]
        raise BadInput(f"expected edges u < v, got {u}, {v}; swap or remove them")
    for weights in (graph.pair_weights, graph.terminal_weights):
        valid = np.isfinite(weights) & (weights >= 0)
        if not valid.all():
            bad = weights[~valid][0]
            raise BadInput(
                f"expected finite weights of 0 or more, got {bad}; correct it"
            )
    return graph


def grid_pairs(shape: Sequence[int]) -> np.ndarray:
    """Return the pairs of adjacent nodes of a grid, Px2; nodes are in C order."""
    nodes = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    pairs = []
    for axis in range(len(shape)):
        along_axis = np.moveaxis(nodes, axis, 0)
        first, second = along_axis[:-1].ravel(), along_axis[1:].ravel()
        pairs.append(np.stack([first, second], axis=1))
    return np.concatenate(pairs)


def contrast_weights(
    pairs: np.ndarray, picture: np.ndarray, smoothness: float
) -> np.ndarray:
    """Return weights of pairs: smoothness · exp(-d² / 2σ²), σ² the mean of all d².

    d is the distance between the colours of a pair. Cuts along contours are cheap.
    """
    squares = np.square(picture[pairs[:, 0]] - picture[pairs[:, 1]]).sum(axis=1)
    spread = float(squares.mean()) or 1.0  # a uniform picture has d = 0
    return (smoothness * np.exp(-squares / (2 * spread))).astype(np.float32)


def terminals(costs_NxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return terminals and weights that encode the costs, up to a constant per node.

    The cost of a label at a node is the sum of the weights of the node's terminals with
    other labels. So the weight of a terminal is the largest cost at the node minus the
    cost of the terminal's label; the most expensive label needs no terminal.

    Args:
      costs_NxK: Cost of each label at each node.
    """
    weights_NxK = costs_NxK.max(axis=1, keepdims=True) - costs_NxK
    node, label = np.nonzero(weights_NxK)
    ends = np.stack([node, label], axis=1).astype(np.int32)
    return ends, weights_NxK[node, label].astype(np.float32)


def picture_graph(
    picture: np.ndarray,
    shape: Sequence[int],
    costs_NxK: np.ndarray,
    smoothness: float,
) -> WeightedGraph:
    """Return the grid graph of a picture, with an edge between adjacent points.

    Args:
      picture: Colours of the points, NxC.
      shape: Shape of the picture.
      costs_NxK: Cost of each label at each point.
      smoothness: Largest weight of an edge; see `contrast_weights`.
    """
    pairs = grid_pairs(shape)
    weights = contrast_weights(pairs, picture, smoothness)
    ends, terminal_weights = terminals(costs_NxK)
    return validate(
        WeightedGraph(
            nodes=len(picture),
            labels=costs_NxK.shape[1],
            pairs=pairs,
            pair_weights=weights,
            terminals=ends,
            terminal_weights=terminal_weights,
            shape=tuple(shape),
            picture=picture.astype(np.float32),
        )
    )


def label_costs(picture: np.ndarray, truth: np.ndarray, labels: int) -> np.ndarray:
    """Return costs NxK of labels: negative log-likelihoods of the colours, clipped.

    The normal distribution of a label is fitted to the nodes with that true label. The
    cheapest label of each node costs 0.

    Args:
      picture: Colours of the nodes, NxC.
      truth: True label of each node.
      labels: Number of labels.
    """
    costs_NxK = np.full((len(truth), labels), np.inf)
    for label in np.unique(truth):
        colours = picture[truth == label].astype(np.float64)
        spread = np.maximum(colours.std(axis=0), MIN_DEVIATION)
        deviations = (picture - colours.mean(axis=0)) / spread
        costs_NxK[:, label] = (0.5 * np.square(deviations) + np.log(spread)).sum(axis=1)
    costs_NxK -= costs_NxK.min(axis=1, keepdims=True)
    return np.minimum(costs_NxK, MAX_COST)


def photograph(
    name: str, every: int = 2, smoothness: float = 1.0, seed: int = 0
) -> WeightedGraph:
    """Return the graph of a noisy photograph with labels 0 (ground) and 1 (figure).

    The true labels are the two k-means clusters of the colours without noise; the
    figure is the cluster whose points are nearer to the middle on average.

    Args:
      name: Name in PHOTOGRAPHS.
      every: Stride between points on both axes.
      smoothness: Weight of the edges between points.
      seed: Random seed of the noise and of k-means.
    """
    if name not in PHOTOGRAPHS or every < 1:
        raise BadInput(
            f"expected one of {', '.join(PHOTOGRAPHS)} and a stride of 1 or more, "
            f"got {name!r} and {every=}; correct the values"
        )
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_sample_image

    colours = load_sample_image(f"{name}.jpg")[::every, ::every].astype("f4") / 255
    shape, points_Nx3 = colours.shape[:2], colours.reshape(-1, 3)
    clusters = KMeans(2, n_init=4, random_state=seed).fit_predict(points_Nx3)
    middle = (np.array(shape) - 1) / 2
    distances = np.linalg.norm(np.argwhere(np.ones(shape)) - middle, axis=1)
    figure = int(distances[clusters == 1].mean() < distances[clusters == 0].mean())
    truth = (clusters == figure).astype(np.int8)
    noise = np.random.default_rng(seed).standard_normal(points_Nx3.shape)
    noisy_Nx3 = np.clip(points_Nx3 + PHOTOGRAPH_NOISE * noise, 0, 1)
    graph = picture_graph(
        noisy_Nx3, shape, label_costs(noisy_Nx3, truth, 2), smoothness
    )
    return graph._replace(truth=truth, names=("ground", "figure"))


def generate(
    shape: Sequence[int], labels: int, seed: int, smoothness: float = 1.0
) -> WeightedGraph:
    """Generate the graph of a noisy picture with a random Voronoi cell per label.

    Args:
      shape: Shape of the picture.
      labels: Number of labels.
      seed: Random seed.
      smoothness: Weight of every edge.
    """
    if min(shape, default=0) < 1 or np.prod(shape) < labels or labels < 2:
        raise BadInput(
            f"expected 2 labels or more and at least as many points, got {labels=} and "
            f"{shape=}; pass a larger shape or fewer labels"
        )
    rng = np.random.default_rng(seed)
    points = np.argwhere(np.ones(shape)).astype(np.float64)
    centres = points[rng.choice(len(points), labels, replace=False)]
    squares_NxK = np.square(points[:, None] - centres).sum(axis=-1)
    truth = squares_NxK.argmin(axis=1).astype(np.int8)
    grey = truth + GENERATED_NOISE * rng.standard_normal(len(points))
    deviations_NxK = (grey[:, None] - np.arange(labels)) / GENERATED_NOISE
    costs_NxK = 0.5 * np.square(deviations_NxK)
    graph = picture_graph(grey[:, None], shape, costs_NxK, smoothness)
    # no contrast weights: differences between adjacent points are mostly noise
    uniform = np.full_like(graph.pair_weights, smoothness)
    return graph._replace(pair_weights=uniform, truth=truth)
