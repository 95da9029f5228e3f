"""The problems of the matrix: a table of small problems of every kind.

A new problem is a new row of PROBLEMS; the matrix and its tests then cover it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import minibatches, take
from dml.evaluation.scores import evaluate
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.models.networks.mlp import mlp
from dml.models.networks.transformer import Shape, transformer
from dml.models.sparse.problem import problem as edge_problem
from dml.strategies.shared.workers import orders
from dml.types import Batch, Model, Params, Problem, SparseModel
from dml.update.dense import make
from dml.update.moves import Moves
from dml.update.rows import AdaGrad
from dml.update.table import table
from dml.wire.memory.state import Order

SEED, GLOVE_BATCH = 0, 60
TEXT = Shape(vocabulary=64, length=8, layers=2, width=16, heads=2)


def random_minibatches(problem: Problem, batch: int) -> Iterator[np.ndarray]:
    return minibatches(problem.examples, batch, SEED)


def example_orders(problem: Problem) -> Iterator[Order]:
    return orders(problem.examples, 1, SEED)


class Entry(NamedTuple):
    """A problem and the settings of its training.

    Attributes:
      make: () -> the problem.
      batch: Number of examples in a minibatch.
      update: An optax optimizer, or an update rule of rows.
      rate: Learning rate of updates by single examples.
      batches: (problem, batch) -> the indices of each minibatch.
      orders: problem -> the order of each epoch.
      served: Update rule of rows on servers, if different.
      blocks: Whether `rotation` can divide the examples, which have one row of users
        and one of items.
      own: Arguments of strategies that the problem needs, by strategy.
    """

    make: Callable[[], Problem]
    batch: int
    update: Any
    rate: float = 0.1
    batches: Callable[[Problem, int], Iterator[np.ndarray]] = random_minibatches
    orders: Callable[[Problem], Iterator[Order]] = example_orders
    served: Any = None
    blocks: bool = False
    own: Mapping[str, Mapping[str, Any]] = {}


def classifier(model: Model) -> Problem:
    """Return a network that classifies the digits."""
    training, held_out = digits()

    def evaluate_held_out(params: Params) -> dict[str, Any]:
        return evaluate(model, held_out, params)

    return model_problem(
        model,
        model.init(jax.random.key(SEED)),
        examples=len(training.targets),
        take=partial(take, training),
        evaluate=evaluate_held_out,
    )


def linear() -> Problem:
    return classifier(logistic(FEATURES, CLASSES))


def perceptron() -> Problem:
    training, _ = digits()
    return classifier(mlp(training.inputs.shape[1:], CLASSES, widths=(16, 16)))


def gpt() -> Problem:
    """Return a transformer trained on a cycle of tokens."""
    model = transformer(TEXT, causal=True)
    tokens = np.arange(64)[:, None] + np.arange(TEXT.length + 1)
    tokens = (tokens**2 % TEXT.vocabulary).astype(np.int32)
    data = Batch(tokens[:, :-1], tokens[:, 1:])
    return model_problem(
        model,
        model.init(jax.random.key(SEED)),
        examples=len(tokens),
        take=partial(take, data),
    )


def documents(model: SparseModel) -> Problem:
    """Return a linear model of sparse rows."""
    from dml.data.sparse.svmlight import generate

    data = model.documents(generate(500, 60, 8, SEED), mu=1e-3)
    return edge_problem(model, data, np.zeros(60, np.float32))


def logistic_of_rows() -> Problem:
    """Return sparse logistic regression."""
    from dml.models.sparse import logistic_edges

    return documents(logistic_edges)


def svm() -> Problem:
    """Return a support vector machine on sparse rows."""
    from dml.models.sparse import svm as sparse_svm

    return documents(sparse_svm)


def completion() -> Problem:
    """Return matrix factorisation."""
    from dml.data.sparse.ratings import generated
    from dml.models.sparse import completion, factors

    training, _ = factors.centre(*generated(30, 20, 500, 3, SEED))
    data = completion.entries_from_ratings(training, 0.02, 0.02)
    return completion.with_products(
        edge_problem(completion, data, factors.start(50, 4, SEED))
    )


def labels() -> Problem:
    """Return a multi-way graph cut."""
    from dml.data.sparse.graphs import generated
    from dml.models.sparse import cuts

    graph = generated((12, 12), 3, SEED, 1.0)
    return edge_problem(cuts, cuts.cuts(graph, SEED), cuts.start(graph))


def dropout_network() -> Problem:
    """Return a network whose updates are sparse by dropout."""
    from dml.models.sparse import dropout

    training, _ = digits()
    sample = Batch(training.inputs[:200], training.targets[:200])
    data = dropout.draw_masks(sample, 16, 0.25, 1, SEED, 0.03)
    return edge_problem(dropout, data, dropout.start(16, 64, CLASSES, SEED))


def glove() -> Problem:
    """Return GloVe on random records."""
    from dml import sim
    from dml.data.text.cooccurrence import RECORD
    from dml.models.networks.glove import glove
    from dml.strategies.glove.problem import problem
    from dml.strategies.glove.tiling import Order, tiled
    from dml.wire.plans.rotation import rounds

    draws = np.random.default_rng(SEED)
    records = np.empty(600, RECORD)
    for name in ("word", "context"):
        records[name] = draws.integers(1, 31, len(records))
    records["value"] = draws.random(len(records)) * 20 + 0.1
    cells = [cell for tasks in rounds(3, 2) for task in tasks for cell in task]
    order = Order(cells, 3, 2, 16, SEED, 10.0, 0.75)
    (made,) = sim.run(lambda comm: tiled(comm, records, 30, order), 1)
    return problem(glove(30, 12).init(SEED), *made, GLOVE_BATCH)


def glove_rows(values: np.ndarray) -> Any:
    """Return AdaGrad for GloVe's rows on servers."""
    from dml.strategies.glove.served import adagrad

    return adagrad(12, 0.05)(values)


def consecutive_minibatches(problem: Problem, batch: int) -> Iterator[np.ndarray]:
    from dml.strategies.glove.problem import minibatches

    while True:
        yield from minibatches(problem.examples, batch)


def tile_orders(problem: Problem) -> Iterator[Order]:
    from dml.strategies.glove.problem import order

    return repeat(order(problem.kernel.data))


def descent(rate: float) -> Callable[[np.ndarray], Any]:
    """Return SGD on rows."""
    return partial(table, "sgd", rate=rate)


def projected_descent(rate: float) -> Callable[[np.ndarray], Any]:
    """Return SGD on rows of cuts, with projection onto the simplex."""
    from dml.models.sparse import cuts

    return partial(Moves, move=cuts.move, rate=lambda number: rate)


PROBLEMS: dict[str, Entry] = {
    "linear": Entry(cache(linear), 48, make("sgd", 0.1)),
    "mlp": Entry(cache(perceptron), 48, make("sgd", 0.1)),
    "gpt": Entry(cache(gpt), 24, make("sgd", 0.1)),
    "documents": Entry(cache(logistic_of_rows), 48, descent(2.0), rate=0.3),
    "svm": Entry(cache(svm), 48, descent(2.0), rate=0.3),
    "completion": Entry(cache(completion), 48, descent(2.0), rate=0.05, blocks=True),
    "cuts": Entry(cache(labels), 48, projected_descent(2.0), rate=0.1),
    "dropout": Entry(cache(dropout_network), 24, descent(0.5), rate=0.05),
    "glove": Entry(
        glove,  # not shared between ranks: a gradient is valid until the next one
        GLOVE_BATCH,
        partial(AdaGrad, rate=0.05),
        rate=0.05,
        batches=consecutive_minibatches,
        orders=tile_orders,
        served=glove_rows,
        own={"synchronous": {"columns": (slice(0, 12), slice(32, 33))}},
    ),
}
