"""Matrix factorisation as a table of factors: a minibatch touches few of its rows.

Ratings in, a Problem out, whose rows are as hot as they have ratings.
"""

import numpy as np

from dml.models.factors import centred, gradient, metrics, start, touched
from dml.types import Problem, Ratings


def problem(
    training: Ratings, held_out: Ratings, factors: int, mu: float, seed: int
) -> Problem:
    """Make the problem; a seed draws the table that it starts from."""
    rows = 1 + max(int(part.items.max()) for part in (training, held_out))
    heat = np.bincount(training.users, minlength=rows)
    heat += np.bincount(training.items, minlength=rows)
    training, held_out = centred(training, held_out)

    def grads(
        table_TxD: np.ndarray, numbers: np.ndarray, rows: np.ndarray | slice
    ) -> tuple[float, np.ndarray]:
        assert isinstance(rows, np.ndarray)
        return gradient(table_TxD, training, numbers, rows, mu)

    def evaluate(table_TxD: np.ndarray) -> dict[str, float]:
        return {
            "objective": metrics(table_TxD, training, mu)["loss"],
            "rmse": metrics(table_TxD, held_out, mu)["rmse"],
        }

    return Problem(
        start(rows, factors, seed),
        len(training.values),
        lambda numbers: touched(training.users, training.items, numbers),
        grads,
        evaluate,
        heat,
    )
