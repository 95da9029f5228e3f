"""Every network that classifies, against what holds for all of them."""

import functools

import jax
import numpy as np
import pytest

from dml.data.minibatches import take
from dml.models.gradient import gradient
from dml.models.layered import first, read
from dml.models.networks import resnet as residual
from dml.models.networks.cnn import cnn
from dml.models.networks.mlp import mlp
from dml.models.networks.resnet import Plan, resnet
from dml.types import BadInput, Batch

SHAPE, TINY = (8, 8, 1), Plan((1, 1), 2, (3, 3), 1, False, 4)
MODELS = {
    "mlp": lambda **how: mlp(SHAPE, 10, (7, 5), **how),
    "cnn": lambda **how: cnn(SHAPE, 10, 3, **how),
    "resnet": lambda **how: resnet(SHAPE, 10, 6, **how),
}
# Losses before the first step and before the second. Renew them where a model's start,
# its arithmetic or numpy's generator is meant to change, and say so in the commit.
GOLDEN = {
    "mlp": (2.311778, 2.269597),
    "cnn": (2.370513, 2.266008),
    "resnet": (2.382060, 2.348768),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A residual network that compiles in a second."""
    monkeypatch.setitem(residual.DEPTHS, 6, TINY)


def example(count=6):
    rng = np.random.default_rng(0)
    inputs = rng.random((count, *SHAPE)).astype(np.float32)
    return Batch(inputs, rng.integers(0, 10, count).astype(np.int32))


@functools.cache
def begun(name):
    """A model, its first params, and the loss and gradient there."""
    model = MODELS[name]()
    params = jax.tree.map(np.asarray, model.init(jax.random.key(0)))
    loss, grads = gradient(model.loss, params, example())
    return model, params, loss, jax.tree.map(np.asarray, grads)


@pytest.mark.parametrize("name", MODELS)
def test_the_first_step_is_the_golden_one(name):
    model, params, loss, grads = begun(name)
    moved = jax.tree.map(lambda one, grad: one - np.float32(0.1) * grad, params, grads)
    after, _ = gradient(model.loss, moved, example())
    # another machine's XLA sums in another order
    assert (float(loss), float(after)) == pytest.approx(GOLDEN[name], rel=1e-4)


@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_layers_one_after_another_give_the_loss_and_its_gradient(name):
    model, params, loss, grads = begun(name)
    assert set(first(model.layers)) == set(params)

    @jax.jit
    def backward(params, batch):
        given, backs = None, []
        for layer in model.layers:
            given, back = jax.vjp(
                lambda part, given, layer=layer: layer.apply(part, given, batch),
                read(layer, params),
                given,
            )
            backs.append(back)
        value, out, found = given, np.float32(1), {}
        for back in reversed(backs):
            part, out = back(out)
            found |= part
        return value, found

    value, found = backward(params, example())
    assert value == pytest.approx(float(loss), rel=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (found, grads)), strict=True):
        # float32, fused otherwise
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_computes_all_products_and_leaves_params_and_loss_in_float32(name):
    model = MODELS[name](dtype="bfloat16")
    params = model.init(jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("f4")}
    traced = jax.make_jaxpr(model.loss)(params, example())
    assert traced.out_avals[0].dtype == np.float32
    products = [
        one.invars[0].aval.dtype
        for one in traced.jaxpr.eqns
        if one.primitive.name in ("dot_general", "conv_general_dilated")
    ]
    assert len(products) >= 3
    assert {str(dtype) for dtype in products} == {"bfloat16"}


def test_bfloat16_is_near_float32_and_remat_is_it():
    _, params, loss, grads = begun("mlp")
    coarse = jax.jit(MODELS["mlp"](dtype="bfloat16").loss)(params, example())
    assert coarse != loss
    assert coarse == pytest.approx(float(loss), rel=0.01)  # eight bits of a number
    again = MODELS["mlp"](remat=True)
    assert "remat" in str(jax.make_jaxpr(jax.grad(again.loss))(params, example()))
    anew, fresh = gradient(again.loss, params, example())
    assert anew == pytest.approx(float(loss), rel=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (fresh, grads)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_metrics_are_those_of_the_scores():
    model, params, loss, _ = begun("mlp")
    scores = np.asarray(jax.jit(model.scores)(params, example().inputs))
    batch = example()._replace(targets=scores.argmax(axis=1).astype(np.int32))
    batch.targets[:2] = scores[:2].argmin(axis=1)
    metrics = jax.jit(model.metrics)
    assert metrics(params, batch)["accuracy"] == pytest.approx(4 / 6)
    # nothing is normalised: the loss is the metric
    assert metrics(params, example())["cross_entropy"] == pytest.approx(float(loss))
    halves = [
        metrics(params, take(example(), part)) for part in np.arange(6).reshape(2, 3)
    ]
    mean = np.mean([half["cross_entropy"] for half in halves])
    assert mean == pytest.approx(float(loss), rel=1e-5)


def test_a_perceptron_without_hidden_layers_is_linear():
    params = mlp(SHAPE, 10, ()).init(jax.random.key(0))
    assert params["head"]["kernel"].shape == (64, 10)
    with pytest.raises(BadInput, match="of at least one number, got .* widths=.3, 0."):
        mlp(SHAPE, 10, (3, 0))
