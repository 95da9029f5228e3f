import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from dml.models.layered import read
from dml.models.networks import classifier
from dml.models.networks.resnet import DEPTHS, Plan, resnet
from dml.types import BadInput, Batch
from dml.wire.mesh.devices import mesh


def count(tree):
    """Return how many numbers there are, and how many of them are statistics."""
    statistics = every = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        every += leaf.size
        statistics += leaf.size * ("statistics" in jax.tree_util.keystr(path))
    return every - statistics, statistics


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
def test_numbers_are_those_of_the_paper(
    depth, shape, classes, weights, statistics, shapes_only
):
    shapes = resnet(shape, classes, depth).init(jax.random.key(0))
    assert count(shapes) == (weights, statistics)


def test_one_layer_a_block_beside_the_first_and_the_last():
    for depth, plan in DEPTHS.items():
        model = resnet((32, 32, 3), 10, depth)
        assert len(model.layers) == sum(plan.blocks) + 2
        assert len(plan.kernels) * sum(plan.blocks) + 2 == depth


@pytest.mark.parametrize(
    "depth, size, expected", [(8, 32, (2, 8, 8, 64)), (50, 64, (2, 2, 2, 2048))]
)
def test_groups_halve_the_maps_and_the_large_stem_quarters_them(
    depth, size, expected, shapes_only
):
    model = resnet((size, size, 3), 10, depth, "bfloat16")
    params = model.init(jax.random.key(0))
    batch, given = (
        Batch(np.zeros((2, size, size, 3), np.float32), np.zeros(2, np.int32)),
        None,
    )
    for layer in model.layers[:-1]:
        part = read(layer, params)
        given = jax.eval_shape(layer.apply, part, given, batch)
    maps, moved = given
    assert (maps.shape, str(maps.dtype)) == (expected, "bfloat16")
    assert (moved.shape, moved.dtype) == ((), np.float32)


@pytest.fixture
def tiny(monkeypatch):
    """A model that compiles in a second, and its params."""
    monkeypatch.setitem(DEPTHS, 6, Plan((1, 1), 4, (3, 3), 1, False, 4))
    model = resnet((4, 4, 1), 10, 6)
    return model, model.init(jax.random.key(0))


def test_a_block_starts_as_its_shortcut_alone(tiny):
    model, params = tiny
    maps = np.random.default_rng(0).random((2, 4, 4, 4), np.float32)
    apply = jax.jit(lambda part, maps: model.layers[1].apply(part, (maps, 0.0), None))
    part = read(model.layers[1], params)
    assert np.array_equal(apply(part, maps)[0], maps)
    part["block_00"]["last"]["scale"] = np.ones(4, np.float32)
    assert not np.array_equal(apply(part, maps)[0], maps)


def test_kernels_start_with_hes_spread(tiny):
    kernel = np.asarray(tiny[1]["block_01"]["Conv_1"]["kernel"])
    # the square root of 2 by what a number sums; five standard errors
    error = 5 / np.sqrt(2 * kernel.size)
    assert kernel.std() / np.sqrt(2 / (9 * 8)) == pytest.approx(1, abs=error)


def test_devices_that_hold_parts_of_a_batch_are_told_from_those_that_agree(tiny):
    model, params = tiny
    batch = Batch(np.zeros((4, 4, 4, 1), np.float32), np.zeros(4, np.int32))

    def loss(params, batch):
        return jax.lax.pmean(model.loss(params, batch), "data")

    places = PartitionSpec(), PartitionSpec("data")
    # check_vma: else it would not even be traced
    sharded = jax.shard_map(
        jax.grad(loss),
        mesh=mesh(data=0),
        in_specs=places,
        out_specs=PartitionSpec(),
        check_vma=True,
    )
    grads = jax.eval_shape(sharded, params, batch)
    assert jax.tree.structure(grads) == jax.tree.structure(params)


@pytest.mark.parametrize(
    "shape, depth, message",
    [
        ((32, 32, 3), 21, "a depth of 8, 20, 32, 50, got 21"),
        ((32, 32), 20, "images HxWxC of 4 by 4 or more"),
        ((28, 28, 1), 50, "32 by 32 or more for depth=50, got .28, 28, 1."),
    ],
)
def test_other_depths_and_images_are_bad_input(shape, depth, message):
    with pytest.raises(BadInput, match=message):
        resnet(shape, 10, depth)
