"""What towers and the wavefront must do on four devices; prints each check's name."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from dml.models.networks import alexnet as alex
from dml.models.networks import towers, translator
from dml.types import Batch
from tests.checks import run
from tests.models.layers.axes_main import line

DEVICES = 4
CLOSE = 1e-5  # of a leaf's largest number: float32 sums in another order
ABOUT = ((8, 8, 1), 4, alex.AlexNetSizes(unit=2, kernel=3, stride=1))
LAYERS, WORDS, READ, WRITTEN = 3, 5, 4, 3


def off(found, wanted):
    """Return the largest difference of two trees, of each leaf's largest number."""

    def one(leaf, right):
        leaf, right = np.asarray(leaf), np.asarray(right)
        assert leaf.shape == right.shape and abs(right).max() > 0
        return abs(leaf - right).max() / abs(right).max()

    return max(jax.tree.leaves(jax.tree.map(one, found, wanted)))


def images():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((3, 8, 8, 1)).astype(np.float32)
    return Batch(inputs, np.array([0, 3, 2], np.int32))


@cache
def params(crossings=alex.PUBLISHED):
    tree = alex.alexnet(*ABOUT, crossings).init(jax.random.key(1))
    noise = np.random.default_rng(1)  # biases that are not 0, and so can be mixed up
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) + 0.1 * noise.standard_normal(leaf.shape, "f"),
        tree,
    )


def check_two_towers_find_the_loss_and_gradient_of_one_device():
    dense = jax.value_and_grad(alex.alexnet(*ABOUT).loss)
    model = towers.tower_model(*ABOUT)
    cut = towers.sharded_gradient(model, params(), line("tower", 2))
    found, wanted = (jax.jit(each)(params(), images()) for each in (cut, dense))
    assert off(found, wanted) < CLOSE


def check_halves_side_by_side_are_a_grouped_convolution():
    one = alex.network_layers(*ABOUT, ())[1]
    maps = np.random.default_rng(2).standard_normal((2, *one.input_shape)).astype("f")
    plain = one._replace(normalised=False, pooled=False, rectified=False)
    given = params(())["layer_2"]
    place = alex.Placement(2, lambda maps: maps, lambda scores: scores)
    wanted = jax.lax.conv_general_dilated(
        *(maps, given["kernel"], (1, 1), "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
    )
    found = alex.apply_filters(plain, given, maps, place)
    assert off(found, wanted + given["bias"]) < CLOSE


def check_maps_are_normalised_by_those_beside_them():
    maps = 100 * np.random.default_rng(3).random((1, 1, 1, 7)).astype("f")
    line = maps.ravel()
    wanted = [
        number / (2 + 1e-4 * (line[max(0, n - 2) : n + 3] ** 2).sum()) ** 0.75
        for n, number in enumerate(line)
    ]
    assert off(alex.local_response(jnp.asarray(maps)).ravel(), np.array(wanted)) < CLOSE


def sentences():
    rng = np.random.default_rng(4)
    return Batch(
        rng.integers(WORDS, size=(2, READ), dtype=np.int32),
        rng.integers(WORDS, size=(2, WRITTEN), dtype=np.int32),
    )


@cache
def network():
    model = translator.translator(WORDS, width=3, layers=LAYERS)
    tree = model.init(jax.random.key(2))
    return model, jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.1), tree)


def check_a_wavefront_finds_the_loss_and_gradient_of_one_device():
    model, tree = network()
    sweep = translator.wavefront(line("layer", LAYERS))
    plain = jax.value_and_grad(model.loss)
    found, wanted = (jax.jit(each)(tree, sentences()) for each in (sweep, plain))
    assert off(found, wanted) < CLOSE


def turns(function, *args):
    """Return how many turns all scans of a program make together."""
    program = jax.make_jaxpr(function)(*args).pretty_print(name_stack=False)
    return sum(map(int, re.findall(r"\blength=(\d+)", program)))


def check_a_sweep_has_as_many_ticks_as_its_formula():
    model, tree = network()
    length = READ + WRITTEN
    assert turns(model.loss, tree, sentences()) == LAYERS * length
    sweep = jax.shard_map(
        lambda tree, batch: translator.device_loss(tree, batch, LAYERS),
        mesh=line("layer", LAYERS),
        in_specs=(translator.SPECS, jax.sharding.PartitionSpec()),
        out_specs=jax.sharding.PartitionSpec(),
        check_vma=False,
    )
    wanted = length + LAYERS - 1
    assert turns(sweep, tree, sentences()) == translator.ticks(LAYERS, length) == wanted


def check_what_is_written_is_the_likeliest_after_what_was_written():
    model, tree = network()
    loss, sources = jax.jit(model.loss), sentences().inputs[:1]
    written = np.asarray(translator.translate(tree, sources))
    best = loss(tree, Batch(sources, written))
    for word in range(WORDS):  # nothing else fits better at the end
        other = np.append(written[:, :-1], [[word]], axis=1).astype(np.int32)
        assert (loss(tree, Batch(sources, other)) > best) == (word != written[0, -1])


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    run(CHECKS, DEVICES)
