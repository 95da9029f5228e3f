"""Tasks of graph cuts: volumes, photographs, records of entities, DIMACS files."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.data.sparse.brain_volume import volume
from dml.data.sparse.dimacs import dimacs
from dml.data.sparse.entities import entities
from dml.data.sparse.graphs import WeightedGraph, generate, photograph
from dml.figures import segments
from dml.models.sparse import cuts as model
from dml.models.sparse.cuts_optimum import Optimum, flow, optimum
from dml.types import Problem
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_runs import Extras, Measures, Task, save

GENERATED = ((40, 40), 3)  # shape and number of labels of a generated picture
PHOTOGRAPH = "flower"
ENTITIES = Defaults(0.05, 0.985, 420, 16)
OTHERS = Defaults(0.4, 0.9, 70, 64)


class Sizes(NamedTuple):
    """Sizes of a graph that is made from a picture or a volume."""

    slices: int = 8  # slices of a volume
    every: int = 2  # stride of the points of a picture
    smoothness: float = 1.0  # cost of a cut between points of equal intensity


def cuts(
    data: str,
    sizes: Sizes,
    compared: bool = True,
    dtype: str = "float32",
    seed: int = 0,
) -> Task:
    """Return the Task of a multiway cut.

    Args:
      data: Name in GRAPHS, or path of a DIMACS file.
      sizes: Sizes of graphs that are made from pictures or volumes.
      compared: Whether the cut is compared with the optimum or with a bound.
      dtype: Type of the table.
      seed: Random seed.
    """

    def load() -> tuple[Any, np.ndarray, Extras]:
        graph = GRAPHS[data](sizes, seed) if data in GRAPHS else dimacs(data)
        cut_data = model.cuts(graph, seed, dtype)
        best = cache(partial(flow if graph.labels == 2 else optimum, graph))

        def evaluate(table: np.ndarray) -> Measures:
            return cut_measures(graph, cut_data, model.largest_labels(table))

        def best_table(problem: Problem) -> np.ndarray:
            return best().table_NxK.astype(dtype)

        def save_and_draw(path: Path, table: np.ndarray) -> Measures:
            labels = model.largest_labels(table)
            if graph.picture is not None:
                arguments = graph.picture, labels, graph.truth, graph.names
                segments.draw(path / "segments", graph.shape, *arguments)
            measures = {**cut_measures(graph, cut_data, labels), **save(path, table)}
            if compared:
                measures |= compare_with_optimum(graph, measures, labels, best())
            return measures

        extras = Extras(evaluate, best_table, save_and_draw)
        return cut_data, model.start(graph, dtype), extras

    return Task(model, load, ENTITIES if data == "entities" else OTHERS)


def cut_measures(
    graph: WeightedGraph, cut_data: model.Cuts, labels: np.ndarray
) -> Measures:
    """Return the cost of a cut, and the share of correct labels if they are known."""
    corners = model.corner_table(labels, graph.labels)
    cut = {"cut": graph.constant + model.cut_value(corners, cut_data)}
    labelled = None if graph.truth is None else graph.truth >= 0
    if labelled is None or not labelled.any():
        return cut
    return cut | {"accuracy": float((labels == graph.truth)[labelled].mean())}


def compare_with_optimum(
    graph: WeightedGraph, measures: Measures, labels: np.ndarray, best: Optimum
) -> dict[str, float]:
    """Compare with the least cut, or with a lower bound for more than two labels.

    Returns:
      exact_cut or cut_bound: Cost of the least cut, or the bound.
      cut_ratio: Cost of the cut divided by this cost.
      cut_accuracy: Share of the nodes with the label of the optimum.
    """
    least = best.lower_bound + graph.constant
    return {
        "exact_cut" if graph.labels == 2 else "cut_bound": least,
        "cut_ratio": measures["cut"] / least if least > 0 else 1.0,
        "cut_accuracy": float((labels == best.labels).mean()),
    }


GRAPHS: dict[str, Callable[[Sizes, int], WeightedGraph]] = {
    "volume": lambda sizes, seed: volume(*sizes, seed),
    "photograph": lambda sizes, seed: photograph(PHOTOGRAPH, *sizes[1:], seed),
    "entities": lambda sizes, seed: entities(seed=seed),
    "generated": lambda sizes, seed: generate(*GENERATED, seed, sizes.smoothness),
}
