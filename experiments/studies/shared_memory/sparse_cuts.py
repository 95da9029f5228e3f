"""Which graphs may be cut edge by edge: Tasks of volumes, photographs and records."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.data.sparse.brain_volume import volume
from dml.data.sparse.dimacs import dimacs
from dml.data.sparse.entities import entities
from dml.data.sparse.graphs import Graph, generated, photograph
from dml.figures import segments
from dml.models.sparse import cuts as model
from dml.models.sparse.cuts_optimum import Optimum, flow, optimum
from dml.types import Problem
from studies.shared_memory.sparse_flags import Stated
from studies.shared_memory.sparse_runs import Extras, Measures, Task, save

GENERATED = ((40, 40), 3)  # points and labels of a generated picture
PHOTOGRAPH = "flower"
ENTITIES = Stated(0.05, 0.985, 420, 16)
OTHERS = Stated(0.4, 0.9, 70, 64)


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
    """Return the cut of one of GRAPHS, or of a DIMACS file.

    If `compared`, the run folder also contains the optimum or a bound of the cut.
    """

    def load() -> tuple[Any, np.ndarray, Extras]:
        graph = GRAPHS[data](sizes, seed) if data in GRAPHS else dimacs(data)
        made = model.cuts(graph, seed, dtype)
        best = cache(partial(flow if graph.labels == 2 else optimum, graph))

        def evaluate(table: np.ndarray) -> Measures:
            return measured(graph, made, model.largest_labels(table))

        def least(problem: Problem) -> np.ndarray:
            return best().table_NxK.astype(dtype)

        def drawn(path: Path, table: np.ndarray) -> Measures:
            labels = model.largest_labels(table)
            if graph.picture is not None:
                seen = graph.picture, labels, graph.truth, graph.names
                segments.draw(path / "segments", graph.shape, *seen)
            measures = {**measured(graph, made, labels), **save(path, table)}
            return measures | (
                beside(graph, measures, labels, best()) if compared else {}
            )

        return made, model.start(graph, dtype), Extras(evaluate, least, drawn)

    return Task(model, load, ENTITIES if data == "entities" else OTHERS)


def measured(graph: Graph, made: model.Cuts, labels: np.ndarray) -> Measures:
    """Return the cost of a cut, and the share of correct labels if they are known."""
    corners = model.corner_table(labels, graph.labels)
    cut = {"cut": graph.constant + model.cut_value(corners, made)}
    known = None if graph.truth is None else graph.truth >= 0
    if known is None or not known.any():
        return cut
    return cut | {"accuracy": float((labels == graph.truth)[known].mean())}


def beside(
    graph: Graph, measures: Measures, labels: np.ndarray, best: Optimum
) -> Measures:
    """Compare with the least cut; of more than two labels only a bound is known.

    cut_accuracy is the share of nodes that are labelled as there.
    """
    least = best.lower_bound + graph.constant
    return {
        "exact_cut" if graph.labels == 2 else "cut_bound": least,
        "cut_ratio": measures["cut"] / least if least > 0 else 1.0,
        "cut_accuracy": float((labels == best.labels).mean()),
    }


GRAPHS: dict[str, Callable[[Sizes, int], Graph]] = {
    "volume": lambda sizes, seed: volume(*sizes, seed),
    "photograph": lambda sizes, seed: photograph(PHOTOGRAPH, *sizes[1:], seed),
    "entities": lambda sizes, seed: entities(seed=seed),
    "generated": lambda sizes, seed: generated(*GENERATED, seed, sizes.smoothness),
}
