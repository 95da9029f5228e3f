"""What hogwild.py and cyclades.py race on: Tasks by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sparse_cuts import Sizes, cuts
from sparse_flags import Stated
from sparse_problems import documents, ratings
from sparse_runs import Extras, Task, save

from dml.models import sparse_svm

MU, MUS = 1e-4, (0.1, 0.2)  # of norms: of weights; of users and items
FAINT = 1e-5
HYPERGRAPH = (50_000, 100_000, 10)  # edges, rows, Ω
LEARNED = Stated(0.5, 0.8, 10, 64, hubs=0.005)


def hypergraph(share: float, seed: int) -> Task:
    """Return documents, of which each meets this share of all: ρ = Δ."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data import hypergraphs

        edges, width, omega = HYPERGRAPH
        made = hypergraphs.generated(edges, width, omega, share, share, seed)
        data = sparse_svm.documents(hypergraphs.documents(made, width, seed), FAINT)
        return data, np.zeros(width, np.float32), unused()

    return Task(sparse_svm, load, LEARNED)


def unused() -> Extras:
    """Say nothing of what is held out: a race is for speed and the objective."""
    return Extras(lambda table: {}, lambda problem: problem.params, save)


def newsgroups(seed: int) -> Task:
    """Return the support vector machine on documents."""
    return documents("newsgroups", "hinge", MU, seed=seed)


def movielens(seed: int) -> Task:
    """Return the completion of what users gave to films."""
    return ratings("movielens", 10, MUS, seed=seed)


def volume(seed: int) -> Task:
    """Return the cut of a brain's slices in three classes."""
    return cuts("volume", Sizes(), compared=False, seed=seed)


SPARSE, DENSE = "sparse", "dense"  # alike but for ρ
PROBLEMS: Mapping[str, Callable[[int], Task]] = {
    "svm": newsgroups,
    "completion": movielens,
    "cuts": volume,
    SPARSE: partial(hypergraph, 0.0002),
    DENSE: partial(hypergraph, 1.0),
}
