import functools

import jax
import numpy as np
import optax
import pytest

from dml.data.images.datasets import images
from dml.data.minibatches import minibatches, take
from dml.models.gradient import gradient
from dml.models.networks.cnn import cnn
from dml.types import BadInput, Batch
from dml.update.dense import apply

SHAPE = (8, 8, 1)


def example(shape=SHAPE, count=6):
    rng = np.random.default_rng(0)
    inputs = rng.random((count, *shape)).astype(np.float32)
    return Batch(inputs, rng.integers(0, 10, count).astype(np.int32))


def test_params_are_of_their_key_alone_and_keep_the_scale_of_the_images():
    model = cnn((28, 28, 1), 10)
    one, same, other = (
        jax.tree.leaves(model.init(jax.random.key(seed))) for seed in (0, 0, 1)
    )
    for leaf, again, another in zip(one, same, other, strict=True):
        assert np.array_equal(leaf, again)
        if leaf.ndim == 1:
            assert not leaf.any()
        else:
            assert not np.array_equal(leaf, another)
            inputs = leaf.size / leaf.shape[-1]
            # five standard errors of so many draws
            spread = 5 / np.sqrt(2 * leaf.size)
            assert leaf.std() * np.sqrt(inputs) == pytest.approx(1, abs=spread)


@functools.cache
def small():
    """A model, and params none of which is 0."""
    model = cnn(SHAPE, 10, width=3)
    params = model.init(jax.random.key(0))
    return model, jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.1), params)


@pytest.mark.parametrize("shape, features", [(SHAPE, 4), ((28, 28, 1), 49)])
def test_numbers_are_those_of_the_layers(shape, features):
    params = cnn(shape, 10, width=3).init(jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    first, second, dense = 9 * 3 + 3, 9 * 3 * 6 + 6, features * 6 * 10 + 10
    assert count == first + second + dense
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("f4")}


def by_hand(params, inputs):
    """Return the logits, by numpy alone."""
    maps = inputs.astype(np.float64)
    for name in ("Conv_0", "Conv_1"):
        wide = np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
        views = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
        maps = np.einsum("bhwcij,ijcd->bhwd", views, params[name]["kernel"])
        maps = np.maximum(maps + params[name]["bias"], 0)
        count, high, wide, depth = maps.shape
        maps = maps.reshape(count, high // 2, 2, wide // 2, 2, depth).max((2, 4))
    dense = params["Dense_0"]
    return maps.reshape(len(inputs), -1) @ dense["kernel"] + dense["bias"]


def test_loss_and_accuracy_are_those_of_two_convolutions_by_hand():
    (model, params), (inputs, targets) = small(), example(count=40)
    scores = by_hand(params, inputs)
    targets[:30] = scores[:30].argmax(axis=1)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = -np.log(chances[np.arange(40), targets]).mean()
    # float32 against float64, sums of some hundred terms
    batch = Batch(inputs, targets)
    assert jax.jit(model.loss)(params, batch) == pytest.approx(loss, rel=1e-4)
    right = (scores.argmax(axis=1) == targets).mean()
    assert 0.75 <= right < 1
    accuracy = jax.jit(model.metrics)(params, batch)["accuracy"]
    assert accuracy == pytest.approx(right)


def test_loss_is_the_mean_over_examples_without_any_promotion():
    (model, params), batch = small(), example()
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        loss = jax.jit(model.loss)
        halves = [
            loss(params, take(batch, part)) for part in np.arange(6).reshape(2, 3)
        ]
        whole = loss(params, batch)
    # float32: sums of some hundred terms of size 1
    assert whole == pytest.approx(np.mean(halves), rel=1e-5)


def test_it_reads_97_of_100_digits_after_300_steps():
    training, held_out = images("digits")
    model = cnn(SHAPE, 10)
    params = model.init(jax.random.key(0))
    optimizer = optax.adam(0.005)
    state = optimizer.init(params)
    for _, index in zip(range(300), minibatches(1437, 32, seed=0), strict=False):
        _, grads = gradient(model.loss, params, take(training, index))
        params, state = apply(optimizer, grads, state, params)
    assert jax.jit(model.metrics)(params, held_out)["accuracy"] >= 0.97


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 1), (8, 8, 0)])
def test_images_that_have_no_place_for_two_pools_are_bad_input(shape):
    with pytest.raises(BadInput, match="expected images HxWxC of 4 by 4"):
        cnn(shape, 10)
