"""What a mesh of four devices of one process must do; prints the name of each check."""

from functools import cache
from unittest import mock

import jax
import numpy as np
import pytest

from dml.data.minibatches import draws, take
from dml.metrics.noise import Noise
from dml.strategies import mesh as module
from dml.strategies.hybrid.hybrid import hybrid
from dml.strategies.hybrid.parts import Pipeline
from dml.strategies.mesh import device_shards, mesh
from dml.strategies.serial import serial
from dml.strategies.sharded import sharded
from dml.strategies.zero import gathering
from dml.types import BadInput
from dml.wire.mesh import devices
from dml.wire.mesh.axes import DATA_SHARDED, REPLICATED
from dml.wire.mesh.packed import sum_layers
from dml.wire.mesh.slices import split
from tests.checks import run
from tests.models.layers import normed
from tests.strategies import small
from tests.strategies.small import (
    BATCH,
    CLOSE,
    COUNT,
    MODEL,
    WIDTH,
    Batch,
    apart,
    data,
    same_bits,
    square,
    train,
)

DEVICES = 4


def on_mesh(**options):
    return train(mesh, axes=devices.mesh(data=0), **options)


@cache  # a run compiles for two seconds
def known(strategy=on_mesh, **options):
    return strategy(**options) if strategy is on_mesh else train(strategy, **options)


def close(found, plain):
    small.close(found, plain)
    assert apart(found[-1].state, plain[-1].state) < CLOSE


def check_shards_slices_and_microbatches_train_as_one_worker():
    for options in (
        {"noise": True},
        {"accumulate": 2},
        *({"zero": z} for z in (1, 2, 3)),
    ):
        close(known(**options), known(serial))
    # layers that share their norms
    lamb = {"name": "lamb", "zero": 3, "accumulate": 2}
    close(known(**lamb), known(serial, name="lamb"))


def check_a_gradient_of_all_devices_trains_as_one_worker():
    for specs in (REPLICATED, DATA_SHARDED):
        found = train(sharded, axes=devices.mesh(data=0), specs=specs)
        close(found, known(serial))
        sends = [sum(step.measures.values()) > 0 for step in found]
        assert set(sends) == {specs == DATA_SHARDED}


def check_pmap_is_shard_map_and_noise_changes_nothing():
    assert same_bits(known(noise=True), known(call="pmap"))
    with pytest.raises(BadInput, match="--zero"):
        on_mesh(call="pmap", zero=2)


program = module.program


def check_slices_of_gradients_have_the_bits_of_whole_ones_and_each_compiles_once():
    compiled = []

    def counted(*args):
        means = program(*args)

        def traced(*args):
            compiled.append(1)
            return means(*args)

        return traced

    options = {"name": "sgd", "drawn": 3 * BATCH}
    with mock.patch.object(module, "program", counted):
        sliced = on_mesh(zero=2, **options)
        assert len(compiled) == 1
        whole = on_mesh(**options)
        assert len(compiled) == 2
    assert same_bits(sliced, whole)
    # steps of sgd depend on the length of a gradient, those of adam do not
    small.close(whole, known(serial, **options))


def check_every_level_holds_less():
    levels = {"noise": True}, *({"zero": zero} for zero in (1, 2, 3))
    held = [known(**level)[0].measures["bytes_held"] for level in levels]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(MODEL.init(jax.random.key(0))))
    whole, state, grads, params = (number - 4 for number in held)  # a count of steps
    assert whole == 3 * size
    assert state == grads == size + 2 * size / DEVICES
    assert params == 3 * size / DEVICES


def check_the_backward_pass_gathers_params_again():
    params = MODEL.init(jax.random.key(0))
    slices = split(params, DEVICES)
    inputs = np.zeros((BATCH, WIDTH), np.float32)
    # 2 weights and 2 offsets, and the weight of both ends twice; then the 3 weights
    # that gradients of inputs need. A model without layers gathers 5 leaves once.
    for model, count in (MODEL, 6 + 3), (MODEL._replace(layers=()), 5 + 3):
        gathered = gathering(model, params)

        def grads(slices, inputs, loss=gathered.loss):
            return jax.grad(loss)(slices, Batch(inputs, inputs))

        call = jax.shard_map(
            grads,
            mesh=devices.mesh(data=0),
            in_specs=(DATA_SHARDED, DATA_SHARDED),
            out_specs=DATA_SHARDED,
            check_vma=False,
        )
        text = str(jax.make_jaxpr(call)(slices, inputs))
        assert text.count(" all_gather[") == count


def check_a_run_goes_on_at_any_level_of_slices():
    whole = known(noise=True)
    half = {"params": whole[1].params, "state": whole[1].state}
    assert same_bits(on_mesh(start=2 * BATCH, **half), whole[2:])
    close(on_mesh(start=2 * BATCH, zero=3, **half), whole[2:])


def check_noise_is_the_same_from_devices_and_from_microbatches_of_ranks():
    found = [step.measures["noise_scale"] for step in known(noise=True)]
    again = on_mesh(noise=True, zero=2)
    assert [s.measures["noise_scale"] for s in again] == pytest.approx(found, 1e-3)
    assert len(set(found)) == len(found)

    (step,) = on_mesh(noise=True, drawn=7)  # one each, and three that all share
    (index,) = draws(COUNT, BATCH, 0, 7)
    small = np.mean([square(index[n : n + 1]) for n in range(DEVICES)])
    want = Noise().add(float(small), square(index), 1, 7)
    assert step.measures["noise_scale"] == pytest.approx(want, rel=1e-3)


def check_no_example_is_left_out_or_taken_twice():
    axes = devices.mesh(data=0)
    for count in range(1, 30):
        for accumulate in (1, 2, 3):
            index = np.arange(count)
            even, rest = device_shards(index, axes, accumulate)
            assert sorted([*even, *rest]) == list(index)
            assert len(rest) < DEVICES * accumulate
            assert len(take(data(), even).targets) == len(even)


def check_statistics_of_bfloat16_are_equal_on_all_devices():
    expected, params = normed.train(serial, "float32")
    sizes = {"data": 2, "stage": 2, "tensor": 1}
    for strategy, options in (
        (mesh, {"axes": devices.mesh(data=0)}),
        (hybrid, {"axes": devices.mesh(**sizes), "pipeline": Pipeline()}),
    ):
        losses, found = normed.train(strategy, "bfloat16", **options)
        # the first loss; each device normalises by the statistics of its own examples
        assert losses[0] == pytest.approx(expected[0], rel=0.1)
        for name, leaf in normed.statistics(found).items():
            assert leaf.dtype == np.float32
            close_to = normed.statistics(params)[name]
            np.testing.assert_allclose(leaf, close_to, rtol=0.2, atol=0.05)
            if strategy is mesh:  # hybrid collects params on the host
                shards = [np.asarray(shard.data) for shard in leaf.addressable_shards]
                assert all(np.array_equal(shard, shards[0]) for shard in shards)


def check_a_layer_is_summed_in_one_vector():
    rng = np.random.default_rng(0)
    shapes = {"a": {"w": (3, 5), "c": (5,)}, "b": (7,)}
    tree = jax.tree.map(
        lambda shape: rng.standard_normal((DEVICES, *shape)).astype("f4"),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )

    def summed_by(sum_tree):
        def summed(shards):
            return sum_tree(jax.tree.map(lambda leaf: leaf[0], shards))

        specs = {"in_specs": DATA_SHARDED, "out_specs": REPLICATED}
        call = jax.shard_map(summed, mesh=devices.mesh(data=0), **specs)
        lowered = jax.jit(call).lower(tree)
        return lowered.compile()(tree), lowered.as_text().count("all_reduce")

    layers, sums = summed_by(sum_layers)
    leaves, all_sums = summed_by(lambda grads: jax.lax.psum(grads, "data"))
    assert apart(layers, leaves) == 0
    assert (sums, all_sums) == (2, 3)


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    assert COUNT % DEVICES  # or no minibatch is uneven
    run(CHECKS, DEVICES)
