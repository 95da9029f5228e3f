"""s-step SGD is SGD with fewer messages; grids of ranks are SGD as well."""

import re
from functools import partial

import numpy as np
import optax
import pytest

from dml.models.linear.problem import Descent, linear
from dml.strategies.linear.s_step import s_step
from dml.strategies.operation import operation
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs.linear import step_words
from tests.strategies.linear.small import (
    FEATURES,
    LOSSES,
    batches,
    refusals,
    table,
    train,
)

RATE, L2, BATCH = 0.1, 1e-2, 6
UPDATE = partial(Descent, rate=RATE)


def largest(difference, of):
    return np.abs(difference).max() / np.abs(of).max()


def by_operation(x, y, loss, l2, items, size=3):
    given = x, y, loss, l2
    return train(operation, size, given, items, UPDATE, batch=BATCH)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l2", [0.0, L2])
def test_operation_is_sgd_on_all_columns(kind, loss, l2):
    x, y = table(kind)
    items = batches(20)
    full_x, params = np.asarray(x @ np.eye(FEATURES)), np.zeros(FEATURES)
    slope = {
        "logistic": lambda z, t: -t / (1 + np.exp(t * z)),
        "squared_hinge": lambda z, t: -2 * t * np.maximum(0, 1 - t * z),
        "squared": lambda z, t: z - t,
    }[loss]
    for rows in items:
        slopes = slope(full_x[rows] @ params, y[rows])
        params -= RATE * (full_x[rows].T @ slopes / len(rows) + l2 * params)
    found, _, sent = by_operation(x, y, loss, l2, items)
    assert largest(found - params, params) < 1e-12
    # the ring: 2 (p - 1) / p of b words by each rank and step, and no parameters
    assert sum(nbytes for _, nbytes in sent) >= 20 * 4 * BATCH * 8
    after = by_operation(x, y, loss, l2, batches(21))[2]
    assert sum(n for _, n in after) - sum(n for _, n in sent) == 4 * BATCH * 8


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_operation_takes_an_optax_optimizer_for_all_columns(kind, momentum):
    x, y = table(kind)
    x, items = x.astype(np.float32), batches(20)
    rule = optax.sgd(RATE, momentum)
    params = np.zeros(FEATURES, np.float32)
    problem, state = linear(x, y, dtype=np.float32), rule.init(params)
    for rows in items:
        changes, state = rule.update(problem.gradient(params, rows)[1], state)
        params += changes
    given = x, y, "logistic", 0.0, np.float32
    found, *_ = train(operation, 3, given, items, rule, batch=BATCH)
    assert largest(found - params, params) < 1e-5


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size, steps", [(1, 64), (2, 64), (3, 7), (5, 64)])
def test_s_step_has_the_parameters_of_operation(kind, loss, size, steps):
    x, y = table(kind)
    items = batches(130)  # the last round is short
    expected, *_ = by_operation(x, y, loss, L2, items)
    found, rounds, _ = train(
        s_step, size, (x, y, loss, L2), items, rate=RATE, steps=steps
    )
    assert largest(found - expected, expected) < 1e-12
    assert [step.number for step in rounds] == [*range(steps, 130, steps), 130]


def test_the_factor_of_the_parameters_is_folded():
    x, y = table("sparse")
    items = batches(120)  # the factor would be 1e-360
    expected = by_operation(x, y, "logistic", 9.99, items)[0]
    found = train(s_step, 2, (x, y, "logistic", 9.99), items, rate=RATE, steps=4)[0]
    assert largest(found - expected, expected) < 1e-12


@pytest.mark.parametrize("steps", [1, 4, 8])
def test_a_round_of_s_steps_is_one_all_reduce_of_products_and_pairs(steps):
    x, y = table()
    allreduce, lengths = ALLREDUCE["butterfly"], []

    def counting(comm, buffer, op):
        lengths.append(len(buffer))
        allreduce(comm, buffer, op)

    given = x, y, "logistic", L2
    items = batches(16)
    _, rounds, sent = train(
        s_step, 4, given, items, rate=RATE, steps=steps, allreduce=counting
    )
    words = step_words(steps, BATCH)
    assert words == steps * BATCH + BATCH**2 * steps * (steps - 1) // 2
    assert lengths == [words] * (16 // steps) * 4
    # butterfly: lg p messages of the whole buffer in a round
    assert [step.words_sent for step in rounds] == [2 * words] * (16 // steps)
    assert sent[0] == (2 * 16 // steps, 2 * words * 8 * 16 // steps)


@pytest.mark.parametrize("size, groups", [(2, 2), (4, 2), (6, 3)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_grid_steps_by_the_whole_minibatch(size, groups, kind):
    x, y = table(kind)
    items = batches(30)
    expected, steps, _ = by_operation(x, y, "logistic", L2, items)
    given = x, y, "logistic", L2
    found, grid, _ = train(s_step, size, given, items, rate=RATE, groups=groups)
    assert largest(found - expected, expected) < 1e-12
    losses = np.array([[a.loss, b.loss] for a, b in zip(steps, grid, strict=True)])
    assert largest(losses[:, 0] - losses[:, 1], losses) < 1e-12


def test_groups_with_s_steps_average_their_parameters():
    x, y = table()
    items = batches(8)
    given = x, y, "squared", L2
    halves = [
        train(s_step, 1, given, [part[half] for part in items], rate=RATE, steps=8)[0]
        for half in (slice(0, 3), slice(3, 6))
    ]
    found = train(s_step, 4, given, items, rate=RATE, steps=8, groups=2)[0]
    assert largest(found - np.mean(halves, axis=0), found) < 1e-12


@pytest.mark.parametrize(
    "size, given, own, message",
    [
        (1, {}, {"steps": 0}, "from 1 to 1000000 for steps of s_step, got 0"),
        (1, {}, {"rate": 0.0}, "for rate of s_step, got 0.0"),
        (4, {}, {"groups": 3}, "groups of equally many ranks, got 3 groups of 4"),
        (4, {}, {"groups": 4}, "minibatches that 4 groups can share equally, got 6"),
        (2, {"l2": 10.0}, {}, "expected a rate below 1/λ = 0.1, got 0.1"),
        (34, {}, {}, "a feature or more for each of 34 ranks, got 33 features"),
        (2, {"y": np.ones(60)}, {}, "-1 and 1 as targets, got 1 values from 1.0"),
        (2, {"y": np.ones(59)}, {}, "target of each of 60 examples, got float64"),
        (2, {"y": np.full(60, np.nan)}, {}, "finite targets, got NaN"),
        (2, {"x": np.full((60, 4), np.inf)}, {}, "finite features, got NaN or inf"),
        (2, {"x": np.zeros((60, 0))}, {}, "examples x features, got float64 of shape"),
        (2, {"x": np.zeros(60)}, {}, "examples x features, got float64 of shape"),
        (2, {"loss": "hinge"}, {}, "a loss of logistic, .*, got 'hinge'"),
        (2, {"l2": np.nan}, {}, "an L2 weight of at least 0, got nan"),
    ],
)
def test_bad_input_is_refused_on_every_rank(size, given, own, message):
    x, y = table()
    values = {"x": x, "y": y, "loss": "logistic", "l2": L2} | given
    refused = refusals(
        s_step, size, values.values(), batches(2), **{"rate": RATE, **own}
    )
    assert len(refused) == size
    assert all(re.search(message, text) for text in refused), refused
