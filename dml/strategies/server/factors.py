"""Matrix factorisation as the problem of a table of factors.

A minibatch touches few rows. A row's access frequency is its number of ratings.
"""

from operator import attrgetter

import numpy as np

from dml.models.factors import centred, gradient, metrics, start, touched
from dml.types import Problem, Ratings, Rows, Touching


def problem(
    training: Ratings, held_out: Ratings, factors: int, mu: float, seed: int
) -> Problem:
    """Return the problem; the seed draws its start value."""
    rows = 1 + max(int(part.items.max()) for part in (training, held_out))
    frequency = np.bincount(training.users, minlength=rows)
    frequency += np.bincount(training.items, minlength=rows)
    training, held_out = centred(training, held_out)

    def take(indices: np.ndarray) -> Touching:
        return Touching(indices, touched(training.users, training.items, indices))

    def grads(table_TxD: np.ndarray, batch: Touching) -> tuple[float, Rows]:
        assert isinstance(batch.rows, np.ndarray)
        loss, values = gradient(table_TxD, training, batch.indices, batch.rows, mu)
        return loss, Rows(batch.rows, values)

    def evaluate(table_TxD: np.ndarray) -> dict[str, float]:
        return {
            "objective": metrics(table_TxD, training, mu)["loss"],
            "rmse": metrics(table_TxD, held_out, mu)["rmse"],
        }

    return Problem(
        start(rows, factors, seed),
        len(training.values),
        grads,
        evaluate,
        take,
        attrgetter("rows"),
        frequency,
    )
