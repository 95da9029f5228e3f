"""Problems by name: small ones of every kind, networks of images, and users' own.

linear, mlp, gpt, svm, glove, ...   a row of PROBLEMS
mlp:digits,32                       a network of NETWORKS, a set of images, and widths
./mine.py:make                      a function of a user

A new problem is a new row of PROBLEMS; the matrix and its tests then cover it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import jax
import numpy as np

from dml import extend
from dml.data.images.datasets import images
from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import minibatches
from dml.models.networks.cnn import cnn
from dml.models.networks.logistic import logistic
from dml.models.networks.mlp import mlp
from dml.models.networks.transformer import Shape, transformer
from dml.models.sparse.problem import problem as edge_problem
from dml.strategies.shared.workers import orders
from dml.task import Task
from dml.types import (
    BadInput,
    Batch,
    Model,
    Problem,
    Rows,
    spec,
)
from dml.types.ranges import Count
from dml.update.dense import make
from dml.update.moves import Moves
from dml.update.rows import AdaGrad
from dml.update.table import table
from dml.wire.memory.state import Order

SEED, GLOVE_BATCH = 0, 60
HELD_OUT = 512  # windows of a text that are evaluated
GLOVE_COLUMNS = slice(0, 12), slice(32, 33)  # vector and bias, without padding
VECTORS = "synchronous", "coded", "zeno", "gradient_coding"  # of GLOVE_COLUMNS
RATE = 0.1  # default learning rate of users' problems
TEXT = Shape(vocabulary=64, length=8, layers=2, width=16, heads=2)


def random_minibatches(
    problem: Problem, batch: int, seed: int = SEED
) -> Iterator[np.ndarray]:
    return minibatches(problem.examples, batch, seed)


def example_orders(problem: Problem, seed: int = SEED) -> Iterator[Order]:
    return orders(problem.examples, 1, seed)


class Entry(NamedTuple):
    """A problem and the settings of its training.

    Attributes:
      make: () -> the problem.
      batch: Number of examples in a minibatch.
      update: An optax optimizer, or an update rule of rows; None: there is no default.
      rate: Learning rate of updates by single examples.
      batches: (problem, batch, seed) -> the indices of each minibatch.
      orders: (problem, seed) -> the order of each epoch.
      served: Update rule of rows on servers, if it differs from `update`.
      blocks: Whether `rotation` can divide the examples, which have one row of users
        and one of items.
      own: Arguments of strategies that the problem needs, by strategy.
      rates: Learning rates by optimizer; the first optimizer is the default.
    """

    make: Callable[[], Problem]
    batch: int
    update: Any = None
    rate: float = 0.1
    batches: Callable[..., Iterable[np.ndarray]] = random_minibatches
    orders: Callable[..., Iterator[Order]] = example_orders
    served: Any = None
    blocks: bool = False
    own: Mapping[str, Mapping[str, Any]] = {}
    rates: Mapping[str, float] = {}


def given(problem: Problem, batches: Iterable[Any], update: Any = None) -> Entry:
    """Return the entry of a problem that is trained on these minibatches.

    Args:
      problem: The problem, which is shared by virtual ranks.
      batches: Indices of each minibatch; not an iterator, as each rank iterates.
      update: Update of the parameters.
    """
    return Entry(lambda: problem, 0, update, batches=lambda *_: batches)


def perceptrons(data: str, *width: Count) -> Task:
    return of_images(data, lambda shape, classes: mlp(shape, classes, width))


def convolutional(data: str, width: Count = 16) -> Task:
    return of_images(data, lambda shape, classes: cnn(shape, classes, width))


def of_images(data: str, make: Callable[..., Model]) -> Task:
    """Return the task of a network (shape, classes) -> Model of images."""
    both = training, _ = images(data)
    return Task(make(training.inputs.shape[1:], count_classes(both)), *both)


NETWORKS: dict[str, Callable[..., Task]] = {"mlp": perceptrons, "cnn": convolutional}


@cache  # the model is a static argument of compiled functions
def network(name: str, data: str, *widths: int) -> Task:
    """Return a network of images.

    Args:
      name: Key of NETWORKS.
      data: Name of the images, or their folder.
      *widths: Further arguments of the network.
    """
    return NETWORKS[name](data, *widths)


def count_classes(parts: Iterable[Batch]) -> int:
    """Return the number of classes of images."""
    return 1 + max(int(part.targets.max()) for part in parts)


def linear() -> Problem:
    return Task(logistic(FEATURES, CLASSES), *digits()).problem()


def perceptron() -> Problem:
    return network("mlp", "digits", 16, 16).problem()


def gpt(shape: Shape = TEXT) -> Problem:
    """Return a transformer trained on a cycle of tokens."""
    tokens = np.arange(64)[:, None] + np.arange(shape.length + 1)
    return texts(shape, (tokens**2 % shape.vocabulary).astype(np.int32)).problem()


def texts(shape: Shape, tokens_BxL: np.ndarray) -> Task:
    """Return a transformer that predicts the next token, evaluated on its examples."""
    data = Batch(tokens_BxL[:, :-1], tokens_BxL[:, 1:])
    return Task(transformer(shape, causal=True), data, data)


def language(
    corpus: str, vocabulary: int, length: int, layers: int, width: int, heads: int
) -> Task:
    """Return a transformer that predicts the next subword of a text.

    Args:
      corpus: Names, files or folders of the text.
      vocabulary: Number of subwords.
      length: Number of subwords of an example.
      layers, width, heads: Sizes of the transformer.
    """
    from dml.data.text.tokens import tokens
    from dml.data.text.windows import causal_windows

    known = tokens(corpus, "bpe", vocabulary)
    training, held_out = causal_windows(known.ids, length)
    shape = Shape(known.tokenizer.get_vocab_size(), length, layers, width, heads)
    tested = Batch(*(leaf[:HELD_OUT] for leaf in held_out))
    return Task(transformer(shape, causal=True), training, tested)


def documents(model: Any) -> Problem:
    """Return a linear model of sparse rows."""
    from dml.data.sparse.svmlight import generate

    data = model.documents(generate(500, 60, 8, SEED), mu=1e-3)
    return edge_problem(model, data, np.zeros(60, np.float32))


def logistic_of_rows() -> Problem:
    """Return sparse logistic regression."""
    from dml.models.sparse import logistic_edges

    return documents(logistic_edges)


def columns() -> Problem:
    """Return logistic regression of digits below and above 5, by columns."""
    from dml.models.linear.problem import linear as linear_model

    training, _ = digits()
    classes = np.where(training.targets < CLASSES // 2, -1, 1)
    return linear_model(training.inputs, classes, l2=1e-3, dtype=np.float32)


def svm() -> Problem:
    """Return a support vector machine on sparse rows."""
    from dml.models.sparse import svm as sparse_svm

    return documents(sparse_svm)


def completion() -> Problem:
    """Return matrix factorisation."""
    from dml.data.sparse.ratings import generate
    from dml.models.sparse import completion, factors

    training, _ = factors.centre(*generate(30, 20, 500, 3, SEED))
    data = completion.entries_from_ratings(training, 0.02, 0.02)
    return completion.with_products(
        edge_problem(completion, data, factors.start(50, 4, SEED))
    )


def episodes() -> Problem:
    """Return the actor-critic of A3C, whose examples are episodes of Catch."""
    from dml.environments.catch import CATCH
    from dml.models.policies.episodes import episode_problem

    return episode_problem(CATCH, examples=96, seed=SEED, widths=(8,), episodes=8)


def labels() -> Problem:
    """Return a multi-way graph cut."""
    from dml.data.sparse.graphs import generate
    from dml.models.sparse import cuts

    graph = generate((12, 12), 3, SEED, 1.0)
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
    ((tiles, blocks),) = sim.run(lambda comm: tiled(comm, records, 30, order), 1)
    return problem(glove(30, 12).init(SEED), tiles, blocks, GLOVE_BATCH)


def glove_rows(values: np.ndarray) -> Any:
    """Return AdaGrad for GloVe's rows on servers."""
    from dml.strategies.glove.served import adagrad

    return adagrad(12, 0.05)(values)


def consecutive_minibatches(
    problem: Problem, batch: int, seed: int = SEED
) -> Iterator[np.ndarray]:
    from dml.strategies.glove.problem import minibatches

    while True:
        yield from minibatches(problem.examples, batch)


def tile_orders(problem: Problem, seed: int = SEED) -> Iterator[Order]:
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
    "episodes": Entry(cache(episodes), 48, make("sgd", 0.1)),
    "documents": Entry(cache(logistic_of_rows), 48, descent(2.0), rate=0.3),
    "svm": Entry(cache(svm), 48, descent(2.0), rate=0.3),
    "columns": Entry(cache(columns), 48, make("sgd", 0.5), rate=0.5),
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
        own=dict.fromkeys(VECTORS, {"columns": GLOVE_COLUMNS}),
    ),
}


def find_problem(name: str) -> Entry:
    """Return the entry of a name in PROBLEMS, a network of images, or a user's problem.

    A user's problem is an entry point or FILE.py:NAME.
    """
    if name in PROBLEMS:
        return PROBLEMS[name]
    if spec.name_of(name) in NETWORKS:
        return network_entry(name)
    return user_entry(name, extend.find(name, PROBLEMS, extend.PROBLEMS))


@cache
def network_entry(name: str) -> Entry:
    """Return the entry of NETWORK:IMAGES,WIDTH,…, such as mlp:digits,32."""
    kind, arguments = spec.parse(name, NETWORKS, "a network of images")
    problem = network(kind, *arguments).problem()
    return Entry(lambda: problem, min(48, problem.examples), make("sgd", RATE))


@cache
def user_entry(name: str, make_problem: Callable[[], Problem]) -> Entry:
    """Return the entry of a user's problem, which is shared by virtual ranks."""
    made = extend.make(name, make_problem, Problem)
    check(name, made)
    return Entry(lambda: made, min(48, made.examples), make_update(made, "sgd", RATE))


def check(name: str, problem: Problem) -> None:
    """Raise BadInput unless a gradient has the shapes of the parameters."""
    if problem.examples < 1:
        raise BadInput(
            f"expected at least 1 example in the problem of {name}, got "
            f"{problem.examples}; correct the number of examples"
        )
    first = problem.take(np.arange(min(48, problem.examples)))
    _, gradient = problem.gradient(problem.params, first)
    rows = problem.touched is not None
    got = [np.shape(leaf) for leaf in jax.tree.leaves(gradient)]
    wanted = [np.shape(leaf) for leaf in jax.tree.leaves(problem.params)]
    if isinstance(gradient, Rows) if rows else got == wanted:
        return
    shapes = "dml.Rows" if rows else f"shapes {wanted}"
    raise BadInput(
        f"expected a gradient with {shapes} from the problem of {name}, got a "
        f"{type(gradient).__name__} with shapes {got}; correct its gradient"
    )


def make_update(problem: Problem, optimizer: str, rate: float) -> Any:
    """Return an optax optimizer of a tree of parameters, or a rule of rows."""
    if problem.touched is None:
        return make(optimizer, rate)
    return partial(table, optimizer, rate=rate)
