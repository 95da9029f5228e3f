"""Zeno: one right worker is enough; its scores do not depend on ranks."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.strategies.serial import serial
from dml.strategies.zeno import mean_of_best, zeno
from dml.types import BadInput, Problem
from dml.update.table import table
from dml.wire.comm import Metered
from tests.strategies.small import alone, same_bits, train

EXAMPLES, WIDTH, UPDATES = 60, 8, 40
TARGETS = np.random.default_rng(0).standard_normal((EXAMPLES, WIDTH)) + 5
TARGETS = TARGETS.astype(np.float32)
BEST = TARGETS.mean(axis=0)


def gradient(row_1xD, indices):
    """Return half the mean squared distance to the targets, and its gradient."""
    from dml.types import Rows

    errors = row_1xD - TARGETS[indices]
    loss = float((errors**2).sum() / 2 / len(indices))
    return loss, Rows(np.zeros(1, np.int32), errors.mean(axis=0, keepdims=True))


CONVEX = Problem(
    params=np.zeros((1, WIDTH), np.float32),
    examples=EXAMPLES,
    gradient=gradient,
    evaluate=lambda params: {},
    touched=lambda indices: np.zeros(1, np.int32),
)


def distance(size=1, strategy=zeno, **options):
    """Return the distance to the optimum after training."""

    def program(comm):
        batches = minibatches(EXAMPLES, 20, 0)
        comm, update = Metered(comm), partial(table, "sgd", rate=0.1)
        own = {"comm": comm, "timer": Timer(comm.Wtime), **options}
        steps = strategy(CONVEX, batches, update, **own)
        for step, _ in zip(steps, range(UPDATES), strict=False):
            params = step.params().copy()
        return params

    first, *others = sim.run(program, size)
    assert all((first == other).all() for other in others)
    return float(np.abs(first - BEST).max())


def reverse(rows, step, total):
    """Replace all terms but one by the same step uphill."""
    honest = step % len(rows)
    wrong = np.arange(len(rows)) != honest
    rows[wrong] = -3 * rows[honest]


@pytest.mark.parametrize("rule", ["mean", "median", "krum"])
def test_one_right_worker_is_enough_where_other_rules_fail(rule, monkeypatch):
    assert distance(workers=5, faulty=4, forge=reverse) < 0.5
    # the same attack on a rule that reads the terms only
    monkeypatch.setattr(
        "dml.strategies.zeno.mean_of_best", lambda rows, *others: 5 * RULES[rule](rows)
    )
    assert not distance(workers=5, faulty=4, forge=reverse) < 5


def krum(rows, faulty=1):
    """Return the row with the smallest sum of its nearest squared distances."""
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    nearest = np.sort(squares, axis=1)[:, 1 : len(rows) - faulty - 1]
    return rows[nearest.sum(axis=1).argmin()]


RULES = {
    "mean": partial(np.mean, axis=0),
    "median": partial(np.median, axis=0),
    "krum": krum,
}


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_terms_that_are_not_finite_are_never_added(value):
    def forge(rows, step, total):
        rows[[0, 2]] = value

    assert distance(workers=4, faulty=0, forge=forge) < 0.5

    def forge_all(rows, step, total):
        rows[:] = value

    with pytest.raises(BadInput, match="a finite term that leads to a finite loss"):
        distance(workers=4, faulty=3, forge=forge_all)


def test_scores_decide_and_rows_are_added_in_their_order():
    rows = np.array([[1e8], [1], [-1e8], [3]], np.float32)
    scores = np.array([1.0, 2.0, 3.0, -np.inf])
    assert mean_of_best(rows, scores, 1) == 4 * -1e8
    assert mean_of_best(rows, scores, 4) == 0  # (1e8 + 1) - 1e8 in float32
    # equal scores: the first workers
    assert mean_of_best(rows, np.zeros(4), 1) == 4e8


@pytest.mark.parametrize("workers", [3, 5])
def test_without_faulty_terms_it_is_serial_training_on_any_number_of_ranks(workers):
    plain = train(serial, accumulate=workers)
    for size in (1, 2, 3):

        def program(comm):
            return train(zeno, comm=Metered(comm), workers=workers, faulty=0)

        assert all(same_bits(found, plain) for found in sim.run(program, size))


def test_a_large_gradient_is_penalised_by_its_norm():
    def forge(rows, step, total):  # the optimum by one large step
        rows[0, :-1] *= 9

    assert distance(workers=2, faulty=1, penalty=0.0, forge=forge) > 0.0
    first = distance(workers=2, faulty=1, penalty=10.0, forge=forge)
    plain = distance(workers=2, faulty=1, penalty=10.0)
    assert first == pytest.approx(plain, abs=0.5)


@pytest.mark.parametrize("faulty", [-1, 3])
def test_a_worker_must_be_left(faulty):
    with pytest.raises(BadInput, match="expected 0 to 2 faulty terms of 3 workers"):
        train(zeno, comm=alone(), workers=3, faulty=faulty)


def test_words_are_those_of_an_all_gather():
    def program(comm):
        step, *_ = train(zeno, comm=Metered(comm), workers=6, drawn=16)
        return step.words_sent, sum(map(np.size, _leaves(step.params)))

    words, lengths = zip(*sim.run(program, 3), strict=True)
    assert sum(words) == 2 * 6 * (lengths[0] + 1)


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)
