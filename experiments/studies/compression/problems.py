"""Problems of compressed.py, with the settings of their trainings."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from lab import flags
import jax
import jax.numpy as jnp
import numpy as np

from dml.data.text.tokens import tokens
from dml.evaluation.scores import evaluate
from dml.models.model_problem import model_problem
from dml.models.networks import glove as embeddings
from dml.problems import Entry, find_problem, language, network
from dml.types import BadInput, Embeddings, Model, Params, Problem

SEED, CORPUS, VOCABULARY = 0, "enwiki", 512
SIZES = 32, 2, 64, 2  # length, layers, width and heads of the transformer
DIM, WINDOW, X_MAX, POWER = 32, 5, 100.0, 0.75  # of GloVe
EPSILON = 0.5  # of the counterexamples


def glove() -> Problem:
    """Return GloVe of a text's subwords, with the dense gradient of its table."""
    records = cooccurrences(tokens(CORPUS, "bpe", VOCABULARY).ids)
    model = embeddings.glove(VOCABULARY, DIM)
    start = model.init(SEED)
    params = {"vectors": start.vectors_TxD, "biases": start.biases_T}

    def loss(params: Params, batch: embeddings.Records) -> Any:
        state = Embeddings(params["vectors"], params["biases"], None, None)
        return model.loss(state, batch)

    def read(indices: np.ndarray) -> embeddings.Records:
        return embeddings.Records(*(field[indices] for field in records))

    trained = Model(lambda key: params, loss, lambda params, batch: {})
    return model_problem(trained, params, examples=len(records.logs), take=read)


def cooccurrences(ids: np.ndarray) -> embeddings.Records:
    """Return the records of all pairs of tokens within the window."""
    counts = np.zeros(VOCABULARY**2)
    for distance in range(1, WINDOW + 1):
        pairs = ids[:-distance].astype(np.int64) * VOCABULARY + ids[distance:]
        counts += np.bincount(pairs, minlength=len(counts)) / distance
    counts = counts.reshape(VOCABULARY, VOCABULARY)
    counts += counts.T
    words, contexts = np.nonzero(counts)
    values = counts[words, contexts].astype(np.float32)
    return embeddings.Records(
        words.astype(np.int32),
        (contexts + VOCABULARY).astype(np.int32),  # rows of contexts follow
        np.log(values),
        embeddings.weight(values, X_MAX, POWER),
    )


def majorities() -> Problem:
    """Return counterexample 1 of Karimireddy 2019, in 64 coordinates.

    f(x) = sum of x / 4; a coordinate's stochastic gradient is 4 in a quarter of the
    examples, and -1 in the others: most signs point away from the mean.
    """
    draws = np.random.default_rng(SEED)
    column = np.repeat([4.0, -1.0, -1.0, -1.0], 64)
    gradients = draws.permuted(np.tile(column, (64, 1)), axis=1).T.astype(np.float32)
    return convex(lambda x, rows: (rows @ x).mean(), np.ones(64), gradients)


def kinks() -> Problem:
    """Return counterexample 2: f(x, y) = ε|x + y| + |x - y|.

    The signs of its subgradients are (1, -1) or (-1, 1), which never change x + y.
    """

    def loss(x: jax.Array, rows: jax.Array) -> jax.Array:
        # at x = y the subgradient of |x - y| is (1, -1), not 0
        across = jnp.where(x[0] >= x[1], x[0] - x[1], x[1] - x[0])
        return EPSILON * jnp.abs(x[0] + x[1]) + across + 0 * rows.sum()

    return convex(loss, np.array([1.0, 1.0]), np.zeros((64, 1), np.float32))


def squares() -> Problem:
    """Return counterexample 3: least squares, whose gradients have the signs ±(1, -1).

    f(x) = mean of ⟨a, x⟩² for a = ±(1, -1) + ε(1, 1).
    """
    draws = np.random.default_rng(SEED)
    signs = draws.choice([-1.0, 1.0], 64)[:, None]
    rows = (signs * [1, -1] + EPSILON * np.ones(2)).astype(np.float32)
    return convex(lambda x, rows: ((rows @ x) ** 2).mean(), np.ones(2), rows)


def convex(
    loss: Callable[[jax.Array, jax.Array], Any], start: np.ndarray, rows: np.ndarray
) -> Problem:
    """Return the problem of a vector; an example is a row."""
    model = Model(
        lambda key: {"x": start.astype(np.float32)},
        lambda params, batch: loss(params["x"], batch),
        lambda params, batch: {"loss": loss(params["x"], batch)},
    )
    return model_problem(
        model,
        model.init(None),
        examples=len(rows),
        take=lambda indices: rows[indices],
        evaluate=partial(evaluate, model, rows),
    )


DESCENT = {"sgd": 0.01}
DEFAULT = {"momentum": 0.02, "adam": 2e-3}  # rates of networks and of other problems
OF_GPT = {"adam": 1e-3, "momentum": 0.15}
OF_GLOVE = {"momentum": 1.0, "adagrad": 0.3, "adam": 2e-2}
PROBLEMS: Mapping[str, Entry] = {
    "digits": Entry(lambda: network("mlp", "digits", 128, 128).problem(), 64),
    "cnn": Entry(lambda: network("cnn", "digits").problem(), 64),
    "gpt": Entry(
        lambda: language(CORPUS, VOCABULARY, *SIZES).problem(), 32, rates=OF_GPT
    ),
    "glove": Entry(glove, 2048, rates=OF_GLOVE),
    "counterexample_1": Entry(majorities, 4, rates=DESCENT),
    "counterexample_2": Entry(kinks, 4, rates=DESCENT),
    "counterexample_3": Entry(squares, 4, rates=DESCENT),
}


@cache
def find(name: str) -> Problem:
    """Return a problem with a pytree of parameters; raise BadInput for a table."""
    entry = PROBLEMS.get(name) or find_problem(name)
    task = entry.make()
    if isinstance(task.params, np.ndarray):
        raise BadInput(
            f"expected a problem with a pytree of parameters, got --problem={name}, "
            "which has rows; pass --problem=digits"
        )
    return task


class Settings(NamedTuple):
    """The settings of a training.

    Attributes:
      optimizer: Name of the optimizer.
      lr: Its learning rate.
      batch: Number of examples in a minibatch, over all ranks.
    """

    optimizer: str
    lr: float
    batch: int


REPLACED = {"dgc": "momentum", "one_bit_adam": "adam"}  # optimizers of reducers


def settings(name: str, values: flags.FlagValues) -> Settings:
    """Return the settings of a reducer: those of the flags, or of the problem.

    A reducer that has momentum is trained by SGD, at the rate of the optimizer that it
    replaces.
    """
    entry = PROBLEMS.get(values.problem) or find_problem(values.problem)
    rates = entry.rates or DEFAULT
    chosen = values.optimizer or next(iter(rates))
    replaced = REPLACED.get(name.partition(":")[0], "")
    optimizer = replaced or chosen
    lr = values.lr if values.lr and optimizer == chosen else rates.get(optimizer)
    if not lr:
        raise BadInput(
            f"expected a learning rate of {optimizer} for --problem={values.problem}, "
            f"which has those of {', '.join(rates)}; pass --optimizer=<one of them>, "
            f"or --optimizer={optimizer} --lr=<rate>"
        )
    return Settings("sgd" if replaced else optimizer, lr, values.batch or entry.batch)
