"""What may be learned edge by edge: Tasks of documents, ratings and images."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from sparse_flags import Stated
from sparse_runs import Extras, Task, undrawn

from dml.models import sparse_logistic_edges, sparse_svm
from dml.types import Batch

LOSSES: dict[str, tuple[ModuleType, Stated]] = {
    "hinge": (sparse_svm, Stated(0.5, 0.8, 10, 64, hubs=0.005)),
    "logistic": (sparse_logistic_edges, Stated(8.0, 0.8, 10, 64, hubs=0.005)),
}
GENERATED = (5000, 10_000, 20)  # examples, features, nonzeros of an example
HELD_OUT = 5  # one of so many examples of a file


def documents(
    data: str, loss: str, mu: float, dtype: str = "float32", seed: int = 0
) -> Task:
    """Return the classification of sparse rows: of a set of DOCUMENTS, or a file."""
    model, stated = LOSSES[loss]

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data.svmlight import laid_out

        training, held_out = (DOCUMENTS.get(data) or partial(halves, data))(seed)
        made = model.documents(laid_out(training, seed), mu, dtype)
        width = training.inputs.shape[1]

        def evaluate(table: np.ndarray) -> dict[str, float]:
            return {"accuracy": sparse_svm.accuracy(table, held_out)}

        least = lambda problem: model.optimum(problem.data, width)  # noqa: E731
        return made, np.zeros(width, dtype), Extras(evaluate, least, undrawn)

    return Task(model, load, stated)


def halves(path: str, seed: int) -> tuple[Batch, Batch]:
    """Read an svmlight file; hold a fifth of it out."""
    from dml.data.svmlight import signs, svmlight

    return split(signs(svmlight(path), path), seed)


def split(whole: Batch, seed: int) -> tuple[Batch, Batch]:
    order = np.random.default_rng(seed).permutation(len(whole.targets))
    cut = max(1, len(order) // HELD_OUT)
    test, training = (
        Batch(whole.inputs[part], whole.targets[part])
        for part in (order[:cut], order[cut:])
    )
    return training, test


def newsgroups(seed: int) -> tuple[Batch, Batch]:
    from dml.data.newsgroups import newsgroups

    return newsgroups()


def reuters(seed: int) -> tuple[Batch, Batch]:
    from dml.data.reuters import reuters

    return reuters()


def generated(seed: int) -> tuple[Batch, Batch]:
    from dml.data.svmlight import generate

    return split(generate(*GENERATED, seed), seed)


DOCUMENTS: dict[str, Callable[[int], tuple[Batch, Batch]]] = {
    "newsgroups": newsgroups,
    "reuters": reuters,
    "generated": generated,
}
