import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dml.data.sparse.svmlight import generate
from dml.models.sparse.logistic import gradient, kkt, loss, objective, problem
from dml.types import BadInput, Batch
from dml.update.table import table

FEATURES = 60
DATA = generate(80, FEATURES, 4, seed=3)


def weights(seed=0, scale=1.0):
    draws = np.random.default_rng(seed).normal(size=FEATURES)
    return (scale * draws).astype(np.float32)


def minibatch(seed, size=9):
    return np.random.default_rng(seed).permutation(80)[:size]


@jax.jit
@jax.value_and_grad
def reference(weights_T, inputs_BxT, targets_B):
    return jax.nn.softplus(-targets_B * (inputs_BxT @ weights_T)).mean()


def touched(inputs, index):
    return np.unique(inputs[index].indices)


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_jax(seed):
    index, at = minibatch(seed), weights(seed, 2)
    rows = touched(DATA.inputs, index)
    found, grads_N = gradient(at, DATA, index, rows)
    dense = jnp.array(DATA.inputs[index].toarray()), jnp.array(DATA.targets[index])
    want, wants_T = reference(jnp.array(at), *dense)
    assert found == pytest.approx(float(want), rel=1e-6)
    np.testing.assert_allclose(grads_N, wants_T[rows], rtol=1e-5, atol=1e-7)
    assert abs(grads_N).min() > 0 and grads_N.dtype == np.float32
    others = np.delete(np.asarray(wants_T), rows)
    assert (others == 0).all()  # nothing is missing


@pytest.mark.parametrize("sign", (-1, 1))
def test_scores_however_large_overflow_nothing(sign):
    batch = Batch(csr_matrix(np.float32([[1], [1]])), np.float32([1, -1]))
    at = np.float32([sign * 1e4])
    found, grads_N = gradient(at, batch, np.arange(2), np.arange(1))
    # the one is right, at no loss; the other is wrong by 10 000, with slope 1
    assert found == loss(at, batch) == 5000 and grads_N.tolist() == [sign * 0.5]


def test_the_loss_of_all_is_a_minibatch_and_gradients_have_the_order_of_rows():
    at, index = weights(4), np.arange(80)
    found, _ = gradient(at, DATA, index, touched(DATA.inputs, index))
    assert loss(at, DATA) == pytest.approx(found, rel=1e-6)
    assert gradient(at, DATA, index[:0], np.arange(FEATURES))[0] == 0
    norm = 0.25 * abs(at.astype(float)).sum()
    assert objective(at, DATA, 0.25) == pytest.approx(found + norm, rel=1e-6)
    index, at = minibatch(1), weights(1)
    rows = touched(DATA.inputs, index)
    _, grads_N = gradient(at, DATA, index, rows)
    order = np.random.default_rng(0).permutation(len(rows))[:7]
    some = np.append(rows[order], np.setdiff1d(np.arange(FEATURES), rows)[:1])
    _, found = gradient(at, DATA, index, some)
    assert found.tobytes() == np.append(grads_N[order], np.float32(0)).tobytes()


def test_the_filter_changes_no_bit_and_sends_nan_and_what_is_in_the_margin():
    l1, rate = 0.02, 0.7
    full, filtered = (table("sgd", np.zeros((60, 1)), rate, l1=l1) for _ in range(2))
    dropped = 0
    for step in range(200):
        index = minibatch(step, 20)
        rows = touched(DATA.inputs, index)
        for shard, sift in ((full, False), (filtered, True)):
            at = shard.values[rows, 0]
            _, grads = gradient(shard.values[:, 0], DATA, index, rows)
            sent = kkt(at, grads, l1) if sift else np.full(len(rows), True)
            dropped += (~sent).sum()
            shard.update(rows[sent], grads[sent][:, None])
        assert full.values.tobytes() == filtered.values.tobytes()
    assert dropped > 1000 and (full.values != 0).any()
    at, grads = np.float32([0, 0, 0, 0, 5]), np.float32([0.5, -0.9, 1.1, np.nan, 0])
    assert kkt(at, grads, 1.0).tolist() == [False, False, True, True, True]
    assert kkt(at, grads, 1.0, 0.2).tolist() == [False, True, True, True, True]
    # a row is sent if any of its columns is
    at_3x2, grads_3x2 = np.float32([[0, 0], [0, 2], [0, 0]]), np.zeros((3, 2), "f4")
    grads_3x2[2, 0] = 3
    assert kkt(at_3x2, grads_3x2, 1.0).tolist() == [False, True, True]
    assert kkt(at_3x2[:0], grads_3x2[:0], 1.0).tolist() == []


TRAINING, OTHERS = generate(70, 40, 3, seed=1), generate(30, 40, 3, seed=2)
L1 = 0.01


def filled(seed=0):
    return np.random.default_rng(seed).normal(size=(40, 1)).astype(np.float32)


def test_it_starts_at_zeros_and_is_evaluated_on_both_sets():
    one = problem(TRAINING, OTHERS, L1)
    assert one.params.shape == (40, 1) and one.params.dtype == np.float32
    said = one.evaluate(one.params)
    positive = float((OTHERS.targets > 0).mean())
    log = pytest.approx(np.log(2))
    assert said == {"objective": log, "loss": log, "accuracy": positive, "zeros": 1}
    at = filled()
    at[:10] = 0
    said, swapped = one.evaluate(at), problem(OTHERS, TRAINING, 0.0).evaluate(at)
    assert said["zeros"] == 0.25
    assert said["loss"] == swapped["objective"] != swapped["loss"]
    norm = L1 * abs(at).sum(dtype=float)
    assert said["objective"] == pytest.approx(swapped["loss"] + norm, rel=1e-6)


def test_other_labels_and_other_features_are_bad_input():
    zero_one = TRAINING._replace(targets=np.maximum(TRAINING.targets, 0))
    with pytest.raises(BadInput, match=r"-1 and \+1 in held_out, got \[0.0, 1.0\]; re"):
        problem(TRAINING, zero_one, L1)
    with pytest.raises(BadInput, match=r"labels .* in training, got \[0.0, 1.0\]; re"):
        problem(zero_one, TRAINING, L1)
    with pytest.raises(BadInput, match="expected 40 features in held_out, .* got 41"):
        problem(TRAINING, generate(5, 41, 3, seed=0), L1)
