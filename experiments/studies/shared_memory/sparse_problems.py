"""Problems of sparse models, as Tasks: documents, ratings and images."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dml.data.sparse import documents as texts
from dml.data.sparse import hypergraphs
from dml.data.sparse import ratings as scores
from dml.data.sparse.svmlight import by_frequency, generate, read_split, shuffled, split
from dml.evaluation.residuals import residuals
from dml.models.sparse import completion, dropout, factors, logistic_edges, svm
from dml.types import BadInput, Batch, Problem
from studies.shared_memory.sparse_flags import Stated
from studies.shared_memory.sparse_runs import Extras, Measures, Task, save

LOSSES: dict[str, tuple[ModuleType, Stated]] = {
    "hinge": (svm, Stated(0.5, 0.82, 20, 256, hubs=5e-4)),
    "logistic": (logistic_edges, Stated(1.0, 0.75, 6, 256, hubs=5e-4)),
}
GENERATED = (5000, 1000, 10)  # examples, features, nonzeros of an example
SCORED = (300, 200, 12_000, 3)  # users, items, ratings, factors
X_MAX, ALPHA = 10.0, 0.75  # GloVe's weighting, for texts of some million words
SWEEPS = 50  # of alternating least squares, to a relative change of 1e-4
RATINGS = Stated(0.2, 0.95, 60, 128)
IMAGES = Stated(0.1, 0.96, 120, 16)
COUNTS = Stated(0.05, 0.9, 10, 128)


def documents(
    data: str, loss: str, mu: float, dtype: str = "float32", seed: int = 0
) -> Task:
    """Return the classification of a set of DOCUMENTS or of a file."""
    model, stated = LOSSES[loss]

    def load() -> tuple[Any, np.ndarray, Extras]:
        both = source(data)(seed)
        order, (training, held_out) = by_frequency(*both)
        made = model.documents(shuffled(training, seed), mu, dtype)
        width = training.inputs.shape[1]

        def evaluate(table: np.ndarray) -> Measures:
            return {"accuracy": svm.accuracy(table, held_out)}

        def least(problem: Problem) -> np.ndarray:
            return model.optimum(problem.kernel.data, width)

        def named(path: Path, table: np.ndarray) -> Measures:
            weights = np.empty_like(table)
            weights[order] = table
            return save(path, weights)

        return made, np.zeros(width, dtype), Extras(evaluate, least, named)

    return Task(model, load, stated)


def source(data: str) -> Callable[[int], tuple[Batch, Batch]]:
    """Return a function that loads a set of DOCUMENTS, generated data, or a file."""
    name, _, sizes = data.partition(":")
    if name == "generated" and sizes:
        return partial(chosen, sizes)
    return DOCUMENTS.get(data) or partial(read_split, data)


def chosen(sizes: str, seed: int) -> tuple[Batch, Batch]:
    """Generate examples with given Ω, Δ and ρ."""
    try:
        omega, delta, rho = map(float, sizes.split(","))
    except ValueError:
        raise BadInput(
            f"expected --data=generated:Ω,Δ,ρ such as generated:10,0.01,0.1, got "
            f"generated:{sizes}; correct the numbers"
        ) from None
    count, rows = GENERATED[0], int(GENERATED[0] * max(omega, 1))
    edges = hypergraphs.generated(count, rows, int(omega), delta, rho, seed)
    return split(hypergraphs.documents(edges, rows, seed), seed)


DOCUMENTS: dict[str, Callable[[int], tuple[Batch, Batch]]] = {
    "newsgroups": lambda seed: texts.documents("newsgroups"),
    "reuters": lambda seed: texts.documents("reuters"),
    "generated": lambda seed: split(generate(*GENERATED, seed), seed),
}


def ratings(
    data: str, k: int, mus: tuple[float, float], dtype: str = "float32", seed: int = 0
) -> Task:
    """Return the completion of a matrix of ratings."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        if data == "generated":
            both = scores.generated(*SCORED, seed)
        else:
            both = scores.ratings(data, seed)
        training, held_out = factors.centre(*both)
        training = in_drawn_order(training, seed)
        made = completion.entries_from_ratings(training, *mus, dtype)
        others = completion.entries_from_ratings(held_out, *mus, dtype)
        rows = 1 + max(int(part.items.max()) for part in both)
        start = factors.start(rows, k, seed).astype(dtype)

        def evaluate(table: np.ndarray) -> Measures:
            return {"rmse": completion.rmse(table, others)}

        def drawn(path: Path, table: np.ndarray) -> Measures:
            seen = np.bincount(training.items, minlength=rows)[held_out.items]
            residuals(
                path / "residuals", completion.prediction_errors(table, others), seen
            )
            return save(path, table)

        return made, start, Extras(evaluate, reference, drawn)

    return Task(completion, load, RATINGS)


def counts(folder: str, k: int, dtype: str = "float32", seed: int = 0) -> Task:
    """Return GloVe as matrix completion of log counts written by cooccurrence.py."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        from studies.glove.counting import open_counts

        _, vocabulary, records = open_counts(Path(folder))
        records = records[np.random.default_rng(seed).permutation(len(records))]
        words = len(vocabulary.words)
        sides = records["word"] - 1, records["context"] - 1, records["value"]
        made = completion.entries_from_counts(*sides, words, X_MAX, ALPHA, dtype=dtype)
        start = factors.start(2 * words, k, seed).astype(dtype)
        return made, start, Extras(lambda table: {}, None, save)  # that takes hours

    return Task(completion, load, COUNTS)


def reference(problem: Problem) -> np.ndarray:
    """Return the result of alternating least squares from the same start value."""
    return completion.optimum(problem.kernel.data, problem.params, SWEEPS)


def in_drawn_order(arrays: Any, seed: int) -> Any:
    """Return a tuple of arrays with the examples in random order."""
    order = np.random.default_rng(seed).permutation(len(arrays[0]))
    return arrays._replace(
        **{name: part[order] for name, part in arrays._asdict().items()}
    )


def images(
    keep: float,
    hidden: int,
    masks: int,
    mu: float,
    dtype: str = "float32",
    seed: int = 0,
) -> Task:
    """Return a network on digits with dropout, whose updates touch the kept units."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data.images.digits import digits

        training, held_out = digits()
        training = in_drawn_order(training, seed)
        made = dropout.draw_masks(training, hidden, keep, masks, seed, mu, dtype=dtype)
        classes = 1 + int(training.targets.max())
        start = dropout.start(hidden, made.inputs_BxI.shape[1], classes, seed, dtype)

        def evaluate(table: np.ndarray) -> Measures:
            return {"accuracy": dropout.accuracy(table, held_out)}

        def least(problem: Problem) -> np.ndarray:
            return dropout.optimum(problem.kernel.data, problem.params)

        return made, start, Extras(evaluate, least, save)

    return Task(dropout, load, IMAGES)
