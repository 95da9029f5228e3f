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
from dml.data.sparse.svmlight import (
    generate,
    read_split,
    renumber_by_frequency,
    shuffle,
    split,
)
from dml.evaluation.residuals import residuals
from dml.models.sparse import completion, dropout, factors, logistic_edges, svm
from dml.types import Batch, Problem, spec
from dml.types.ranges import Number
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_runs import Extras, Measures, Task, save

LOSSES: dict[str, tuple[ModuleType, Defaults]] = {
    "hinge": (svm, Defaults(0.5, 0.82, 20, 256, hubs=5e-4)),
    "logistic": (logistic_edges, Defaults(1.0, 0.75, 6, 256, hubs=5e-4)),
}
GENERATED = (5000, 1000, 10)  # examples, features, nonzeros of an example
GENERATED_RATINGS = (300, 200, 12_000, 3)  # users, items, ratings, factors
X_MAX, ALPHA = 10.0, 0.75  # GloVe's weighting, for texts of some million words
SWEEPS = 50  # sweeps of alternating least squares, to a relative change of 1e-4
RATINGS = Defaults(0.2, 0.95, 60, 128)
IMAGES = Defaults(0.1, 0.96, 120, 16)
COUNTS = Defaults(0.05, 0.9, 10, 128)


def documents(
    data: str, loss: str, mu: float, dtype: str = "float32", seed: int = 0
) -> Task:
    """Return the Task of classifying documents.

    Args:
      data: Name in DOCUMENTS, "generated:Ω,Δ,ρ" or path of an svmlight file.
      loss: Name in LOSSES.
      mu: L2 weight.
      dtype: Type of the table.
      seed: Random seed.
    """
    model, defaults = LOSSES[loss]

    def load() -> tuple[Any, np.ndarray, Extras]:
        split_data = document_loader(data)(seed)
        order, (training, held_out) = renumber_by_frequency(*split_data)
        shuffled_data = model.documents(shuffle(training, seed), mu, dtype)
        width = training.inputs.shape[1]

        def evaluate(table: np.ndarray) -> Measures:
            return {"accuracy": svm.accuracy(table, held_out)}

        def optimum(problem: Problem) -> np.ndarray:
            return model.optimum(problem.kernel.data, width)

        def save_in_file_order(path: Path, table: np.ndarray) -> Measures:
            weights = np.empty_like(table)
            weights[order] = table
            return save(path, weights)

        extras = Extras(evaluate, optimum, save_in_file_order)
        return shuffled_data, np.zeros(width, dtype), extras

    return Task(model, load, defaults)


Loader = Callable[[int], tuple[Batch, Batch]]  # seed -> training, held-out examples


def document_loader(data: str) -> Loader:
    """Return the loader of the documents of DOCUMENTS, or of a file."""
    if spec.name_of(data) not in DOCUMENTS:
        return partial(read_split, data)
    loader: Loader = spec.call(data, DOCUMENTS, "--data")
    return loader


def generated(*sparsity: Number) -> Loader:
    """Return generated examples, with given sparsity measures Ω, Δ and ρ or without."""
    if not sparsity:
        return lambda seed: split(generate(*GENERATED, seed), seed)
    if len(sparsity) != 3:
        raise ValueError("Ω,Δ,ρ are three numbers such as 10,0.01,0.1")
    omega, delta, rho = sparsity
    count, rows = GENERATED[0], int(GENERATED[0] * max(omega, 1))

    def load(seed: int) -> tuple[Batch, Batch]:
        edges = hypergraphs.generate(count, rows, int(omega), delta, rho, seed)
        return split(hypergraphs.documents(edges, rows, seed), seed)

    return load


DOCUMENTS: dict[str, Callable[..., Loader]] = {
    "newsgroups": lambda: lambda seed: texts.documents("newsgroups"),
    "reuters": lambda: lambda seed: texts.documents("reuters"),
    "generated": generated,
}


def ratings(
    data: str, k: int, mus: tuple[float, float], dtype: str = "float32", seed: int = 0
) -> Task:
    """Return the Task of completing a matrix of ratings.

    Args:
      data: Name of the data set, or "generated".
      k: Number of factors.
      mus: L2 weights of users and items.
      dtype: Type of the table.
      seed: Random seed.
    """

    def load() -> tuple[Any, np.ndarray, Extras]:
        if data == "generated":
            split_ratings = scores.generate(*GENERATED_RATINGS, seed)
        else:
            split_ratings = scores.ratings(data, seed)
        training, held_out = factors.centre(*split_ratings)
        training = shuffle_examples(training, seed)
        training_entries = completion.entries_from_ratings(training, *mus, dtype)
        held_out_entries = completion.entries_from_ratings(held_out, *mus, dtype)
        rows = 1 + max(int(part.items.max()) for part in split_ratings)
        start = factors.start(rows, k, seed).astype(dtype)

        def evaluate(table: np.ndarray) -> Measures:
            return {"rmse": completion.rmse(table, held_out_entries)}

        def save_and_draw(path: Path, table: np.ndarray) -> Measures:
            frequency = np.bincount(training.items, minlength=rows)[held_out.items]
            errors = completion.prediction_errors(table, held_out_entries)
            residuals(path / "residuals", errors, frequency)
            return save(path, table)

        return training_entries, start, Extras(evaluate, reference, save_and_draw)

    return Task(completion, load, RATINGS)


def counts(folder: str, k: int, dtype: str = "float32", seed: int = 0) -> Task:
    """Return the Task of GloVe: completing a matrix of logarithms of counts.

    Args:
      folder: Folder of counts written by cooccurrence.py.
      k: Number of factors.
      dtype: Type of the table.
      seed: Random seed.
    """

    def load() -> tuple[Any, np.ndarray, Extras]:
        from studies.glove.counting import open_counts

        _, vocabulary, records = open_counts(Path(folder))
        records = records[np.random.default_rng(seed).permutation(len(records))]
        words = len(vocabulary.words)
        columns = records["word"] - 1, records["context"] - 1, records["value"]
        entries = completion.entries_from_counts(
            *columns, words, X_MAX, ALPHA, dtype=dtype
        )
        start = factors.start(2 * words, k, seed).astype(dtype)
        # No optimum: alternating least squares takes hours.
        return entries, start, Extras(lambda table: {}, None, save)

    return Task(completion, load, COUNTS)


def reference(problem: Problem) -> np.ndarray:
    """Return the result of alternating least squares from the same start value."""
    return completion.optimum(problem.kernel.data, problem.params, SWEEPS)


def shuffle_examples(arrays: Any, seed: int) -> Any:
    """Return a named tuple of arrays with the examples in random order."""
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
    """Return the Task of a network on digits with dropout.

    An update changes the rows of the kept units only.

    Args:
      keep: Share of the units that are kept.
      hidden: Number of hidden units.
      masks: Number of masks of each image.
      mu: L2 weight.
      dtype: Type of the table.
      seed: Random seed.
    """

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data.images.digits import digits

        training, held_out = digits()
        training = shuffle_examples(training, seed)
        masked = dropout.draw_masks(
            training, hidden, keep, masks, seed, mu, dtype=dtype
        )
        classes = 1 + int(training.targets.max())
        pixels = masked.inputs_BxI.shape[1]
        start = dropout.start(hidden, pixels, classes, seed, dtype)

        def evaluate(table: np.ndarray) -> Measures:
            return {"accuracy": dropout.accuracy(table, held_out)}

        def optimum(problem: Problem) -> np.ndarray:
            return dropout.optimum(problem.kernel.data, problem.params)

        return masked, start, Extras(evaluate, optimum, save)

    return Task(dropout, load, IMAGES)
