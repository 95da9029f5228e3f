"""Attacks: closed forms, equal bits on any ranks, and no effect on honest terms."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import layout
from dml.wire.reducers import names
from dml.wire.reducers.names import LABEL_FLIP, reducer
from dml.wire.reducers.robust.attacks import ATTACKS, alie_factor, byzantine
from dml.wire.reducers.robust.rule import Slice

N, F, D = 9, 2, 23
ON_TERMS = [name for name in ATTACKS if name != LABEL_FLIP]
EXACT = ["median:2", "trimmed_mean:2", "krum:2", "sign_majority:2"]  # bits on any ranks


def terms(step=0):
    draws = np.random.default_rng(step)
    return draws.standard_normal((N, D)).astype(np.float32) + np.float32(0.5)


def forged(name, rows, attackers=F, estimate=lambda rows: rows.mean(axis=0)):
    """Return the rows after an attack that needs no state."""
    made, rows = byzantine(name, attackers), rows.copy()
    workers = made.workers(len(rows))
    for worker in workers:
        if made.attack.own:
            made.attack.own(rows[worker], 0, worker)
    if made.attack.forge and attackers:
        made.attack.forge(Slice(rows, workers, 0, lambda total: total, estimate))
    return rows


def train(comm, attack, name, steps=3, attackers=F):
    """Return the estimates of all steps; rank r has the terms of its workers."""
    made = reducer(name, tree_allreduce, byzantine(attack, attackers))
    state = made.init(layout(np.zeros(D, np.float32)))
    own = np.array_split(np.arange(N), comm.size)[comm.rank]
    results = []
    for step in range(steps):
        buffers = [terms(step)[worker] for worker in own]
        if len(own) == 1 and comm.size == N:
            state = made.reduce(comm, buffers[0], state)
        else:
            state = made.reduce_terms(comm, buffers, state)
        results.append(buffers[0].copy())
    return np.array(results)


@pytest.mark.parametrize("name", [name for name in ON_TERMS if name != "late"])
def test_an_attack_changes_attackers_only_and_nothing_without_attackers(name):
    rows = terms()
    after = forged(name, rows)
    assert np.array_equal(after[:-F], rows[:-F])
    assert all((after[k] != rows[k]).any() for k in (-1, -2))
    assert np.array_equal(forged(name, rows, attackers=0), rows)


@pytest.mark.parametrize("rule", EXACT)
@pytest.mark.parametrize(
    "attack", ["late:2", "noise", "alie:1", "ipm", "copy", "mimic"]
)
def test_an_attack_has_equal_bits_on_any_ranks_and_logical_workers(attack, rule):
    expected = sim.run(lambda comm: train(comm, attack, rule), N)
    assert all(np.array_equal(each, expected[0]) for each in expected)
    for ranks in (1, 2, 4):
        found = sim.run(lambda comm: train(comm, attack, rule), ranks)
        assert np.array_equal(found[0], expected[0])


@pytest.mark.parametrize("attack", ["optimal_alie", "optimal_ipm"])
def test_replicas_are_equal_after_a_search_over_slices(attack):
    found = sim.run(lambda comm: train(comm, attack, "geometric_median:2"), N)
    assert all(np.array_equal(each, found[0]) for each in found)
    one = sim.run(lambda comm: train(comm, attack, "geometric_median:2"), 1)
    np.testing.assert_allclose(found[0], one[0], rtol=1e-4, atol=1e-4)


def test_late_terms_are_those_of_earlier_updates_and_zero_before():
    (found,) = sim.run(lambda comm: train(comm, "late:2", "mean:2"), 1)
    for step, mean in enumerate(found):
        rows = terms(step)
        rows[-F:] = terms(step - 2)[-F:] if step >= 2 else 0
        np.testing.assert_allclose(mean, rows.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_alie_has_the_factor_of_its_formula_and_the_statistics_of_honest_terms():
    assert alie_factor(20, 4) == pytest.approx(0.157, abs=5e-4)
    assert alie_factor(50, 12) == pytest.approx(0.336, abs=5e-4)
    assert alie_factor(8, 2) == alie_factor(9, 1) == alie_factor(2, 1) == 0
    with pytest.raises(BadInput, match="at most 4 attackers of 9 workers.* got 5"):
        alie_factor(9, 5)
    rows = terms()
    rows[-F:] = 1e9  # what attackers computed does not matter
    honest = rows[:-F].astype(np.float64)
    expected = honest.mean(axis=0) - 1.5 * honest.std(axis=0)
    np.testing.assert_allclose(forged("alie:1.5", rows)[-1], expected, rtol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 3.4, 3.6, 9.0])
def test_inner_product_reverses_the_mean_above_its_threshold(factor):
    rows = terms()
    honest = rows[:-F].mean(axis=0, dtype=np.float64)
    moved = forged(f"ipm:{factor}", rows).mean(axis=0, dtype=np.float64)
    reversed_by_formula = factor * F > N - F
    assert (np.vdot(moved, honest) < 0) == reversed_by_formula


def test_signs_survive_fewer_than_half_blind_flippers():
    rows = np.tile(terms()[0], (N, 1))
    for attackers, survives in ((4, True), (5, False)):
        after = forged("sign_flip", rows, attackers)
        signs = np.sign(np.sign(after).sum(axis=0))
        assert np.array_equal(signs, np.sign(rows[0])) == survives


def test_copies_are_of_different_honest_workers_and_mimics_of_one():
    rows = terms()
    assert np.array_equal(forged("copy", rows)[-F:], rows[:F])
    assert np.array_equal(forged("mimic:3", rows)[-F:], rows[[3, 3]])


def test_noise_has_the_size_of_the_term_and_differs_by_worker_step_and_bucket():
    term = np.random.default_rng(0).standard_normal(4000).astype(np.float32) * 3
    own, found = byzantine("noise:2", 1).attack.own, []
    for scale, step, worker in ((1, 0, 7), (1, 0, 8), (1, 1, 7), (-1, 0, 7), (1, 0, 7)):
        found.append(scale * term)
        own(found[-1], step, worker)
    assert all(5.8 < np.std(noise) < 6.2 for noise in found)
    assert np.array_equal(found[0], found[4])
    for noise in found[1:4]:
        assert abs(np.corrcoef(found[0], noise)[0, 1]) < 0.1


def test_flags_accept_the_names_of_all_attacks():
    assert set(names.ATTACKS) == set(ATTACKS)


@pytest.mark.parametrize("rule", ["median:2", "krum:2", "geometric_median:2+nnm"])
@pytest.mark.parametrize("attack", ["nan", "inf"])
def test_attackers_with_values_that_are_not_finite_are_left_out(attack, rule):
    found = sim.run(lambda comm: train(comm, attack, rule, steps=1), N)[0][0]
    honest = reducer(rule.replace(":2", ":0"), tree_allreduce)

    def program(comm):
        buffers = list(terms()[:-F])
        honest.reduce_terms(comm, buffers, honest.init(layout(buffers[0])))
        return buffers[0]

    (expected,) = sim.run(program, 1)
    np.testing.assert_allclose(found / N, expected / (N - F), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text, message",
    [
        ("evil", "expected an attack of sign_flip.*got 'evil'"),
        ("nan:1", "expected nan, got 'nan:1'"),
        ("noise:-1", r"noise\[:FACTOR\].* instead of a number from 0 to 1000000"),
        ("late:0", r"late\[:UPDATES\].* instead of a whole number from 1 to 1000"),
        ("late:1.5", "UPDATES is '1.5'"),
        ("ipm:x", "got 'ipm:x': EPSILON is 'x'"),
        ("alie:nan", "got 'alie:nan'"),
        ("optimal_alie:1", "RATIO is '1' instead of a number from 0.1 to 0.99"),
    ],
)
def test_an_unknown_attack_or_argument_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        byzantine(text, F)


def test_there_are_more_workers_than_attackers():
    with pytest.raises(BadInput, match="fewer than 3 workers, got 3"):
        byzantine("nan", 3).workers(3)
    assert byzantine("nan", 2).workers(3).tolist() == [1, 2]


def test_an_attack_needs_a_reducer_that_compares_terms():
    with pytest.raises(BadInput, match="expected --reduce=exact or a reducer of mean"):
        reducer("qsgd:4", tree_allreduce, byzantine("alie", F))
