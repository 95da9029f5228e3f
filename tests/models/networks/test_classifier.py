import functools
from collections import Counter

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from dml.models.gradient import gradient
from dml.models.layered import layer_params
from dml.models.networks import classifier
from dml.models.networks import resnet as residual
from dml.models.networks.cnn import cnn
from dml.models.networks.logistic import logistic
from dml.models.networks.mlp import mlp
from dml.models.networks.resnet import ResNetPlan, resnet
from dml.types import BadInput, Batch
from dml.wire.mesh.devices import mesh

SHAPE, TINY = (8, 8, 1), ResNetPlan((1, 1), 2, (3, 3), 1, False, 4)
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


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_computes_all_products_and_leaves_params_and_loss_in_float32(name):
    model = MODELS[name](dtype="bfloat16")
    params = model.init(jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("f4")}
    traced = jax.make_jaxpr(model.loss)(params, example())
    assert traced.out_avals[0].dtype == np.float32
    kinds = ("dot_general", "conv_general_dilated")
    products = [one for one in traced.jaxpr.eqns if one.primitive.name in kinds]
    assert len(products) >= 3
    assert {str(one.invars[0].aval.dtype) for one in products} == {"bfloat16"}


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


def test_a_perceptron_without_hidden_layers_is_linear_and_bad_sizes_are_refused():
    params = mlp(SHAPE, 10, ()).init(jax.random.key(0))
    assert params["head"]["kernel"].shape == (64, 10)
    with pytest.raises(BadInput, match="of at least one unit, got .* widths=.3, 0."):
        mlp(SHAPE, 10, (3, 0))
    for shape in [(8, 8), (3, 8, 1), (8, 8, 0)]:  # no place for two pools
        with pytest.raises(BadInput, match="expected images HxWxC of 4 by 4"):
            cnn(shape, 10)


def cnn_by_hand(params, inputs):
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


def test_scores_and_loss_of_two_convolutions_are_those_by_hand():
    model, batch = MODELS["cnn"](), example(count=40)
    params = jax.tree.map(lambda leaf: leaf + np.float32(0.1), begun("cnn")[1])
    scores = cnn_by_hand(params, batch.inputs)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = -np.log(chances[np.arange(40), batch.targets]).mean()
    # float32 against float64, sums of some hundred terms
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert jax.jit(model.loss)(params, batch) == pytest.approx(loss, rel=1e-4)
    found = jax.jit(model.scores)(params, batch.inputs)
    np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-4)


def linear(seed=0, count=7):
    rng = np.random.default_rng(seed)
    params = {
        "weights": rng.standard_normal((5, 3)).astype(np.float32),
        "bias": rng.standard_normal(3).astype(np.float32),
    }
    inputs = rng.standard_normal((count, 5)).astype(np.float32)
    return params, Batch(inputs, rng.integers(0, 3, count).astype(np.int32))


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_loss_of_the_logistic_regression_is_the_textbooks(l2):
    params, batch = linear()
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        loss, _ = gradient(logistic(5, 3, l2).loss, params, batch)
    scores = batch.inputs.astype(np.float64) @ params["weights"] + params["bias"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    entropy = -np.log(chances[np.arange(7), batch.targets]).mean()
    expected = entropy + l2 / 2 * np.sum(params["weights"] ** 2)
    # float32 against float64, sums of 7 terms: a few of the last of 24 bits
    assert loss == pytest.approx(expected, rel=1e-5)


def test_metrics_of_the_logistic_regression_and_its_start():
    params, (inputs, _) = linear(count=8)
    right = (inputs @ params["weights"] + params["bias"]).argmax(axis=1)
    targets = np.where(np.arange(8) < 6, right, (right + 1) % 3).astype(np.int32)
    model, batch = logistic(5, 3), Batch(inputs, targets)
    assert model.metrics(params, batch)["accuracy"] == 0.75
    # untrained guesses cost the logarithm of the number of classes
    loss = model.loss(model.init(jax.random.key(0)), batch)
    assert loss == pytest.approx(np.log(3), rel=1e-6)


@pytest.fixture
def shapes_only(monkeypatch):
    """Let init return shapes: nothing is drawn."""
    monkeypatch.setattr(classifier, "initial", lambda shapes, key, spread: shapes)


# by hand; He 2015 says 0.27 M and 0.46 M, torchvision has 25,557,032
@pytest.mark.parametrize(
    "depth, shape, classes, weights, statistics",
    [
        (20, (32, 32, 3), 10, 272_474, 1568),
        (32, (32, 32, 3), 10, 466_906, 2464),
        (50, (224, 224, 3), 1000, 25_557_032, 53_120),
    ],
)
def test_resnets_have_the_numbers_of_the_paper(
    depth, shape, classes, weights, statistics, shapes_only
):
    shapes = resnet(shape, classes, depth).init(jax.random.key(0))
    count = Counter()
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        count["statistics" in jax.tree_util.keystr(path)] += leaf.size
    assert count == {False: weights, True: statistics}


@pytest.mark.parametrize(
    "depth, size, expected", [(8, 32, (2, 8, 8, 64)), (50, 64, (2, 2, 2, 2048))]
)
def test_groups_halve_the_maps_and_the_large_stem_quarters_them(
    depth, size, expected, shapes_only
):
    model = resnet((size, size, 3), 10, depth, "bfloat16")
    params = model.init(jax.random.key(0))
    given = None
    batch = Batch(np.zeros((2, size, size, 3), np.float32), np.zeros(2, np.int32))
    for layer in model.layers[:-1]:
        part = layer_params(layer, params)
        given = jax.eval_shape(layer.apply, part, given, batch)
    maps, moved = given
    assert (maps.shape, str(maps.dtype)) == (expected, "bfloat16")
    assert (moved.shape, moved.dtype) == ((), np.float32)


def test_a_residual_block_starts_as_its_shortcut_alone():
    model, params, *_ = begun("resnet")
    maps = np.random.default_rng(0).random((2, 8, 8, TINY.width), np.float32)
    apply = jax.jit(lambda part, maps: model.layers[1].apply(part, (maps, 0.0), None))
    part = layer_params(model.layers[1], params)
    assert np.array_equal(apply(part, maps)[0], maps)
    last = part["block_00"]["last"] | {"scale": np.ones(TINY.width, np.float32)}
    part["block_00"] = part["block_00"] | {"last": last}
    assert not np.array_equal(apply(part, maps)[0], maps)


def test_devices_with_parts_of_a_batch_are_distinguished_from_equal_ones():
    model, params, *_ = begun("resnet")
    batch = example(4)

    def loss(params, batch):
        return jax.lax.pmean(model.loss(params, batch), "data")

    specs = {"in_specs": (P(), P("data")), "out_specs": P()}
    # check_vma: else it would not even be traced
    sharded = jax.shard_map(jax.grad(loss), mesh=mesh(data=0), check_vma=True, **specs)
    grads = jax.eval_shape(sharded, params, batch)
    assert jax.tree.structure(grads) == jax.tree.structure(params)


@pytest.mark.parametrize(
    "shape, depth, message",
    [
        ((32, 32, 3), 21, "a depth of 8, 20, 32, 50, .*got 21"),
        ((32, 32), 20, "images HxWxC of 4 by 4 or more"),
        ((28, 28, 1), 50, "32 by 32 or more for depth=50, got .28, 28, 1."),
    ],
)
def test_other_depths_and_images_of_resnets_are_bad_input(shape, depth, message):
    with pytest.raises(BadInput, match=message):
        resnet(shape, 10, depth)
