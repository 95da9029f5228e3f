"""Small problems of sparse models, and one call of every strategy in shared memory."""

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np

from dml.data.sparse.ratings import generate as generate_ratings
from dml.data.sparse.svmlight import generate
from dml.metrics.timer import Timer
from dml.models.sparse import completion, svm
from dml.models.sparse.factors import centre, start
from dml.models.sparse.problem import problem
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.hogwild import hogwild
from dml.strategies.shared.workers import Descent, orders
from dml.wire.comm import Metered

MU = 1e-3


def documents(examples=200, features=90, nonzeros=6, dtype="float32", seed=3):
    """Return a problem of a weight vector; feature 0 is in every example."""
    batch = generate(examples, features, nonzeros, seed)
    inputs = batch.inputs.tolil()
    inputs[:, 0] = 0.3
    batch = batch._replace(inputs=inputs.tocsr())
    data = svm.documents(batch, MU, dtype)
    return problem(svm, data, np.zeros(features, dtype))


def ratings(count=300, dtype="float32", seed=3):
    """Return a problem of a table of rows."""
    training, held_out = centre(*generate_ratings(30, 25, count, 2, seed))
    data = completion.entries_from_ratings(training, 0.02, 0.02, dtype)
    return problem(completion, data, start(55, 4, seed).astype(dtype))


PROBLEMS = {"documents": documents, "ratings": ratings}
RATES = {"documents": 0.3, "ratings": 0.05}


class How(NamedTuple):
    """The arguments of all strategies."""

    rate: Callable[[int], float]
    batch: int
    seed: int = 0
    momentum: float = 0.0
    counting: bool = False


def begin(strategy, problem, how, comm, epochs, threads=1, **own):
    """Return the Steps of some epochs."""
    if strategy is cyclades:
        own["batch"] = how.batch
    if strategy is hogwild:
        own["counting"] = how.counting
    if strategy is not delayed:
        own["threads"] = threads
    return strategy(
        problem,
        islice(orders(problem.examples, how.batch, how.seed), epochs),
        Descent(how.rate, how.momentum),
        comm=Metered(comm),
        timer=Timer(),
        **own,
    )


def visits(how, epoch, examples):
    """Return the order of one epoch."""
    return next(islice(orders(examples, how.batch, how.seed), epoch - 1, None))
