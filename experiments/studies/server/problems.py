"""Problems of parameter servers by name, with default learning rates."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.server.server import MakeShard
from dml.types import BadInput, Params, Problem
from dml.update.rules import RULES

FACTORS, MU = 10, 0.05  # matrix factorisation: number of factors, L2 weight
GENERATED = (300, 200, 12_000)  # users, items, ratings
HIDDEN = 16  # channels of a network's first layer
MAX_EXAMPLES = 8192  # training examples in a network's objective, at most


class Defaults(NamedTuple):
    """A problem, and the default values of its flags.

    Attributes:
      make: (seed, L1 weight) -> the problem.
      batch: Examples in a minibatch, over all workers.
      clocks: Number of minibatches.
      rates: Learning rates by optimizer, found by a search.
      dense: Whether every gradient contains all parameters.
    """

    make: Callable[[int, float], Problem]
    batch: int
    clocks: int
    rates: Mapping[str, float]
    dense: bool = False


def logistic(seed: int, l1: float, path: str = "") -> Problem:
    """Load 20 Newsgroups, or an svmlight file of which a fifth is held out."""
    from dml.data.sparse.documents import documents
    from dml.data.sparse.svmlight import read_split
    from dml.models.sparse.logistic import problem

    return problem(*(read_split(path, seed) if path else documents("newsgroups")), l1)


def factors(seed: int, l1: float, name: str) -> Problem:
    """Load ratings of a data set, or generate ratings of rank 3."""
    from dml.data.sparse.ratings import generate, ratings
    from dml.models.sparse.factors import problem

    if name == "generated":
        training, held_out = generate(*GENERATED, 3, seed)
    else:
        training, held_out = ratings(name, seed)
    return problem(training, held_out, FACTORS, MU, seed)


def convolutional(seed: int, l1: float, name: str) -> Problem:
    """Return a small convolutional network on a set of images."""
    from dml.problems import network

    return classifier(network("cnn", name, HIDDEN), seed)


def classifier(task: Any, seed: int) -> Problem:
    """Return the problem of a network, a `dml.problems.Task`.

    It is evaluated by the objective on MAX_EXAMPLES training examples and by the
    metrics on held-out ones.
    """
    from dml.data.minibatches import take
    from dml.evaluation.scores import evaluate

    model, training, held_out = task
    count = len(training.targets)
    sample = take(
        training, np.linspace(0, count - 1, min(count, MAX_EXAMPLES)).astype(int)
    )
    objective = model._replace(
        metrics=lambda params, batch: {"objective": model.loss(params, batch)}
    )

    def evaluate_both(params: Params) -> dict[str, float]:
        measures = evaluate(objective, sample, params) | evaluate(
            model, held_out, params
        )
        del measures["sha256"]
        return measures

    return task.problem(seed)._replace(evaluate=evaluate_both)


# Learning rates at which bsp and async both converge on 4 workers.
RATINGS = {"sgd": 40.0, "momentum": 4.0, "adagrad": 2.0, "adam": 0.03}
SMALL = RATINGS | {"sgd": 50.0}
DOCUMENTS = {"sgd": 60.0, "momentum": 6.0, "adagrad": 3.0, "adam": 0.01}
IMAGES = {"sgd": 0.3, "momentum": 0.03, "adagrad": 0.03, "adam": 0.003}
PROBLEMS: dict[str, Defaults] = {
    "logistic": Defaults(logistic, 1024, 100, DOCUMENTS),
    "factors": Defaults(partial(factors, name="movielens"), 4096, 200, RATINGS),
    "generated": Defaults(partial(factors, name="generated"), 1024, 100, SMALL),
}
for name in ("digits", "mnist_5k", "fashion_mnist"):
    make = partial(convolutional, name=name)
    PROBLEMS[name] = Defaults(make, 64, 300, IMAGES, dense=True)


def loader(name: str, seed: int, l1: float, svmlight: str) -> Callable[[], Problem]:
    """Return a function that loads a problem.

    Args:
      name: Name of the problem.
      seed: Random seed.
      l1: L1 weight; --problem=logistic only.
      svmlight: Path of an svmlight file; empty: 20 Newsgroups. --problem=logistic only.
    """
    if name == "logistic":
        return partial(logistic, seed, l1, svmlight)
    return partial(PROBLEMS[name].make, seed, l1)


def default_rate(defaults: Defaults, optimizer: str) -> float:
    """Return the default learning rate of an optimizer."""
    if optimizer not in defaults.rates:
        raise BadInput(
            f"expected --lr with --optimizer={optimizer}, which has no default rate "
            f"({', '.join(defaults.rates)} have one); pass --lr"
        )
    return defaults.rates[optimizer]


def shards(
    defaults: Defaults, optimizer: str, rate: float, l1: float = 0
) -> tuple[MakeShard, MakeShard]:
    """Return the factories of a server's shard and of a worker's update of its copy.

    Args:
      defaults: Problem.
      optimizer: Name of the update rule.
      rate: Learning rate.
      l1: L1 weight of the servers' update.
    """
    from dml.update.table import table

    make_table = partial(table, optimizer, rate=rate)
    if not defaults.dense:
        return partial(make_table, l1=l1), make_table
    from dml.update.flat import elementwise, flat

    make_flat = partial(flat, elementwise(optimizer, rate))
    return make_flat, make_table if optimizer in RULES else make_flat
