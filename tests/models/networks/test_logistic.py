import jax
import numpy as np
import pytest

from dml.data.images.digits import digits
from dml.models.gradient import gradient
from dml.models.networks.logistic import logistic
from dml.types import Batch


def example(seed=0, count=7):
    rng = np.random.default_rng(seed)
    params = {
        "weights": rng.standard_normal((5, 3)).astype(np.float32),
        "bias": rng.standard_normal(3).astype(np.float32),
    }
    inputs = rng.standard_normal((count, 5)).astype(np.float32)
    return params, Batch(inputs, rng.integers(0, 3, count).astype(np.int32))


def by_hand(params, batch, l2):
    scores = batch.inputs.astype(np.float64) @ params["weights"] + params["bias"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = np.eye(3)[batch.targets]
    loss = -np.log(chances[right == 1]).mean() + l2 / 2 * np.sum(params["weights"] ** 2)
    slopes = (chances - right) / len(right)
    grads = {
        "weights": batch.inputs.T @ slopes + l2 * params["weights"],
        "bias": slopes.sum(axis=0),
    }
    return loss, grads


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_loss_and_gradient_are_the_textbook_ones(l2):
    params, batch = example()
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        loss, grads = gradient(logistic(5, 3, l2).loss, params, batch)
    expected, slopes = by_hand(params, batch, l2)
    # float32 against float64, sums of 7 terms: a few of the last of 24 bits
    assert loss == pytest.approx(expected, rel=1e-5)
    for name in slopes:
        np.testing.assert_allclose(grads[name], slopes[name], rtol=1e-4, atol=1e-6)


def test_untrained_guesses_cost_the_log_of_the_classes():
    _, held_out = digits()
    model = logistic(64, 10)
    loss = model.loss(model.init(jax.random.key(0)), held_out)
    assert loss == pytest.approx(np.log(10), rel=1e-6)


def test_accuracy_is_the_share_of_right_guesses():
    params, (inputs, _) = example(count=8)
    right = (inputs @ params["weights"] + params["bias"]).argmax(axis=1)
    targets = np.where(np.arange(8) < 6, right, (right + 1) % 3).astype(np.int32)
    metrics = logistic(5, 3).metrics(params, Batch(inputs, targets))
    assert metrics["accuracy"] == 0.75


def test_models_that_are_one_object_compile_once():
    model, (params, batch) = logistic(5, 3), example(count=11)
    traces = []

    def loss(params, batch):
        traces.append(1)  # only while it is traced
        return model.loss(params, batch)

    for _ in range(3):
        gradient(loss, params, batch)
    assert len(traces) == 1
