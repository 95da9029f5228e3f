"""Zeno: one right worker is enough; its scores do not depend on ranks."""

from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.strategies.best_terms import mean_of_best
from dml.strategies.serial import serial
from dml.strategies.zeno import zeno
from dml.types import BadInput, Problem, Rows
from dml.update.table import table
from dml.wire.comm import Metered
from dml.wire.reducers.robust import Attack, Byzantine
from tests.strategies.small import alone, same_bits, start_params, train

EXAMPLES, WIDTH, UPDATES = 60, 8, 40
TARGETS = np.random.default_rng(0).standard_normal((EXAMPLES, WIDTH)) + 5
TARGETS = TARGETS.astype(np.float32)
BEST = TARGETS.mean(axis=0)


def gradient(row_1xD, indices):
    """Return half the mean squared distance to the targets, and its gradient."""
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


def distance(size=1, updates=UPDATES, **options):
    """Return the distance to the optimum after training."""

    def program(comm):
        batches = minibatches(EXAMPLES, 20, 0)
        comm, update = Metered(comm), partial(table, "sgd", rate=0.1)
        own = {"comm": comm, "timer": Timer(comm.Wtime), **options}
        steps = zeno(CONVEX, batches, update, **own)
        for _, step in zip(range(updates), steps, strict=False):
            params = step.params().copy()
        return params

    first, *others = sim.run(program, size)
    assert all((first == other).all() for other in others)
    return float(np.abs(first - BEST).max())


def test_workers_without_examples_add_neither_gradient_nor_loss():
    def losses(strategy, **own):
        update = partial(table, "sgd", rate=0.1)
        batches = islice(minibatches(EXAMPLES, 2, 0), 5)
        steps = strategy(CONVEX, batches, update, timer=Timer(), **own)
        return [step.loss for step in steps]

    expected = losses(serial, comm=alone())

    def program(comm):
        return losses(zeno, comm=Metered(comm), workers=5, faulty=0)

    for size in (1, 3):
        for found in sim.run(program, size):
            assert found == pytest.approx(expected, rel=1e-5)


def attacks(forge, attackers):
    """Return an attack of the last workers."""
    return Byzantine(Attack(forge=forge), attackers)


def reverse(seen):
    """Replace the terms of attackers by equal steps uphill."""
    seen.rows[seen.attackers] = -3 * seen.rows[seen.honest].mean(axis=0)


ALL_BUT_ONE = {"workers": 5, "faulty": 4, "byzantine": attacks(reverse, 4)}


@pytest.mark.parametrize("rule", ["mean", "median", "krum"])
def test_one_right_worker_is_enough_where_other_rules_fail(rule, monkeypatch):
    assert distance(**ALL_BUT_ONE) < 0.5
    # the same attack on a rule that reads the terms only
    monkeypatch.setattr(
        "dml.strategies.best_terms.mean_of_best",
        lambda rows, *others: 5 * RULES[rule](rows),
    )
    assert not distance(**ALL_BUT_ONE) < 5


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
    def forge(seen):
        seen.rows[seen.attackers] = value

    assert distance(workers=4, faulty=0, byzantine=attacks(forge, 2)) < 0.5

    def forge_all(seen):
        seen.rows[:] = value

    with pytest.raises(BadInput, match="a finite term that leads to a finite loss"):
        distance(workers=4, faulty=3, byzantine=attacks(forge_all, 1))


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
    def enlarge(seen):  # a step of 1 instead of 0.1, to the minimum of the loss
        seen.rows[seen.attackers] *= 10

    options = {"workers": 2, "faulty": 1, "byzantine": attacks(enlarge, 1)}
    start = float(np.abs(BEST).max())
    assert distance(updates=1, penalty=0.0, **options) < 0.2 * start
    assert distance(updates=1, penalty=1.0, **options) > 0.8 * start


def test_every_update_has_a_sample_of_its_own(monkeypatch):
    samples = []

    def take(indices):
        samples.append(tuple(indices))
        return indices

    monkeypatch.setattr("tests.strategies.test_zeno.CONVEX", CONVEX._replace(take=take))
    distance(updates=3, workers=2, faulty=0, sample=9)
    drawn = [sample for sample in samples if len(sample) == 9]
    assert len(set(drawn)) == 3 and all(len(set(sample)) == 9 for sample in drawn)


def test_a_worker_must_be_left():
    with pytest.raises(BadInput, match="expected 0 to 2 faulty terms of 3 workers"):
        train(zeno, comm=alone(), workers=3, faulty=3)


def test_words_are_those_of_an_all_gather():
    def program(comm):
        step, *_ = train(zeno, comm=Metered(comm), workers=6, drawn=16)
        return step.words_sent

    length = sum(np.size(leaf) for leaf in jax.tree.leaves(start_params()))
    assert sum(sim.run(program, 3)) == 2 * 6 * (length + 1)
