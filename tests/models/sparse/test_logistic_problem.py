"""Sparse logistic regression as the server has it, against its own evaluation."""

import numpy as np
import pytest

from dml.data.sparse.svmlight import generate
from dml.models.sparse.logistic import problem
from dml.types import BadInput
from dml.update.table import table

DATA, OTHERS = generate(70, 40, 3, seed=1), generate(30, 40, 3, seed=2)
L1 = 0.01


def bound(l1=L1):
    return problem(DATA, OTHERS, l1)


def filled(seed=0):
    return np.random.default_rng(seed).normal(size=(40, 1)).astype(np.float32)


def test_its_gradient_is_the_slope_of_its_objective_without_the_norm():
    one, at, every = bound(l1=0.0), filled(), np.arange(70)
    loss, (rows, grads_Nx1) = one.gradient(at, one.take(every))
    assert loss == pytest.approx(one.evaluate(at)["objective"], rel=1e-6)
    assert grads_Nx1.shape == (len(rows), 1) and grads_Nx1.dtype == np.float32
    for row, grad in zip(rows, grads_Nx1[:, 0], strict=True):
        step = np.zeros_like(at)
        step[row] = 2**-7
        up, down = (one.evaluate(at + s * step)["objective"] for s in (1, -1))
        assert (up - down) / 2**-6 == pytest.approx(grad, abs=1e-5)


def test_rows_not_touched_do_not_change_the_loss_of_those_examples():
    one, at = bound(), filled()
    batch = one.take(np.array([3, 60, 11]))
    loss, (rows, grads) = one.gradient(at, batch)
    elsewhere = at + 1
    elsewhere[rows] = at[rows]
    again = one.gradient(elsewhere, batch)
    assert again[0] == loss and again[1].values.tobytes() == grads.tobytes()
    for row in rows:
        moved = at.copy()
        moved[row] += 1
        assert one.gradient(moved, batch)[0] != loss


def test_the_frequency_is_how_many_examples_touch_each_row():
    one, counts = bound(), np.zeros(40, int)
    for number in range(one.examples):
        counts[one.touched(one.take(np.array([number])))] += 1
    assert one.frequency.tolist() == counts.tolist() and one.examples == 70


def test_it_starts_at_zeros_and_is_evaluated_on_both_sets():
    one = bound()
    assert one.params.shape == (40, 1) and one.params.dtype == np.float32
    said = one.evaluate(one.params)
    positive = float((OTHERS.targets > 0).mean())
    assert said == {
        "objective": pytest.approx(np.log(2)),
        "loss": pytest.approx(np.log(2)),
        "accuracy": positive,
        "zeros": 1,
    }
    at = filled()
    at[:10] = 0
    said, swapped = one.evaluate(at), problem(OTHERS, DATA, 0.0).evaluate(at)
    assert said["zeros"] == 0.25
    assert said["loss"] == swapped["objective"] != swapped["loss"]
    norm = L1 * abs(at).sum(dtype=float)
    assert said["objective"] == pytest.approx(swapped["loss"] + norm, rel=1e-6)


def test_learning_lowers_the_objective_and_leaves_zeros():
    one, rng = bound(), np.random.default_rng(0)
    shard = table("sgd", one.params, 2.0, l1=L1)
    for _ in range(400):
        index = rng.permutation(one.examples)[:20]
        shard.update(*one.gradient(shard.values, one.take(index))[1])
    said = one.evaluate(shard.values)
    assert said["objective"] < 0.6 and 0.1 < said["zeros"] < 0.9


def test_other_labels_and_other_features_are_bad_input():
    zero_one = DATA._replace(targets=np.maximum(DATA.targets, 0))
    with pytest.raises(BadInput, match=r"-1 and \+1 in held_out, got \[0.0, 1.0\]; re"):
        problem(DATA, zero_one, L1)
    with pytest.raises(BadInput, match=r"labels .* in training, got \[0.0, 1.0\]; re"):
        problem(zero_one, DATA, L1)
    with pytest.raises(BadInput, match="expected 40 features in held_out, .* got 41"):
        problem(DATA, generate(5, 41, 3, seed=0), L1)
