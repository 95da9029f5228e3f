"""The problems of the matrix: small, of every kind, a row each.

A new problem is a new row of PROBLEMS; the matrix and its tests then cover it.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import take
from dml.metrics.evaluation import evaluate
from dml.models.logistic import logistic
from dml.models.mlp import mlp
from dml.models.network import network
from dml.models.transformer import Shape, transformer
from dml.types import Batch, Model, Params, Problem
from dml.update.dense import make
from dml.update.table import table

SEED = 0
TEXT = Shape(vocabulary=64, length=8, layers=2, width=16, heads=2)


class Entry(NamedTuple):
    """A problem, and what suits it.

    make: () -> the problem.
    batch: examples in a minibatch.
    update: an optax optimizer, or a rule of rows.
    """

    make: Callable[[], Problem]
    batch: int
    update: Any


def classifier(model: Model) -> Problem:
    """Return a network that learns the digits."""
    training, held_out = digits()

    def measured(params: Params) -> dict[str, Any]:
        return evaluate(model, held_out, params)

    return network(
        model,
        model.init(jax.random.key(SEED)),
        examples=len(training.targets),
        take=partial(take, training),
        evaluate=measured,
    )


def linear() -> Problem:
    return classifier(logistic(FEATURES, CLASSES))


def perceptron() -> Problem:
    training, _ = digits()
    return classifier(mlp(training.inputs.shape[1:], CLASSES, widths=(16,)))


def gpt() -> Problem:
    """Return a transformer that learns a cycle of tokens."""
    model = transformer(TEXT, causal=True)
    tokens = np.arange(64)[:, None] + np.arange(TEXT.length + 1)
    tokens = (tokens**2 % TEXT.vocabulary).astype(np.int32)
    data = Batch(tokens[:, :-1], tokens[:, 1:])
    return network(
        model,
        model.init(jax.random.key(SEED)),
        examples=len(tokens),
        take=partial(take, data),
    )


def documents() -> Problem:
    """Return sparse logistic regression."""
    from dml.data.svmlight import generate
    from dml.strategies.server.logistic import problem

    return problem(*(generate(n, 60, 8, seed) for seed, n in enumerate((500, 100))), 0)


def ratings() -> Problem:
    """Return matrix factorisation."""
    from dml.data.ratings import generated
    from dml.strategies.server.factors import problem

    return problem(*generated(30, 20, 500, 3, SEED), factors=4, mu=0.05, seed=SEED)


def descent(rate: float) -> Callable[[np.ndarray], Any]:
    """Return SGD on rows."""
    return partial(table, "sgd", rate=rate)


PROBLEMS: dict[str, Entry] = {
    "linear": Entry(cache(linear), 48, make("sgd", 0.1)),
    "mlp": Entry(cache(perceptron), 48, make("sgd", 0.1)),
    "gpt": Entry(cache(gpt), 24, make("sgd", 0.1)),
    "documents": Entry(cache(documents), 48, descent(2.0)),
    "ratings": Entry(cache(ratings), 48, descent(2.0)),
}
