"""What a transformer cut over devices must do; prints the name of each check."""

from collections import Counter
from functools import cache, partial
from itertools import product
from operator import itemgetter
from unittest.mock import patch

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from dml.data.minibatches import draws, take
from dml.data.text.windows import with_keys
from dml.metrics.timer import Timer
from dml.models.layered import compose
from dml.models.layers import partition
from dml.models.layers.experts import Mixture
from dml.models.model_problem import model_problem
from dml.models.networks.tensor_transformer import tensor_transformer
from dml.models.networks.transformer import Shape, linen, transformer
from dml.strategies.hybrid.hybrid import hybrid
from dml.strategies.hybrid.parts import Pipeline
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.types import BadInput, Batch, Examples
from dml.update.dense import make
from dml.wire.mesh import devices
from dml.wire.mesh.traffic import collectives
from tests.checks import run
from tests.strategies.small import alone, apart

DEVICES = 8
SHAPE = Shape(vocabulary=12, length=8, layers=1, width=16, heads=4)
# float32: losses of 2, gradients up to 1, sums of up to 24 rows in another order; what
# is seen is a tenth of it
CLOSE = 4e-6
ROWS, TOLD = 3, 2


@cache
def given(kind):
    """A batch and params none of which is 0, with the dense model's loss and grads."""
    rng = np.random.default_rng(0)
    tokens_BxL = rng.integers(0, SHAPE.vocabulary, (ROWS, 1 + SHAPE.length), np.int32)
    batch = Batch(tokens_BxL[:, :-1], tokens_BxL[:, 1:])
    if kind == "bert":
        places = [rng.permutation(SHAPE.length)[:TOLD] for _ in range(ROWS)]
        told = rng.integers(0, SHAPE.vocabulary, (ROWS, TOLD), np.int32)
        batch = batch._replace(targets=(np.array(places, np.int32), told))
    model = transformer(SHAPE, kind == "gpt")
    params = jax.tree.map(
        lambda leaf: leaf + rng.normal(0, 0.3, leaf.shape).astype("f4"),
        jax.device_get(model.init(jax.random.key(0))),
    )
    dense = jax.jit(jax.value_and_grad(model.loss))(params, batch)
    return params, batch, jax.device_get(dense)


def program(kind, size, sequence=False, dtype="float32"):
    """Compile the model in parts; parts of gradients get an axis for their devices."""
    params, batch, _ = given(kind)
    cut = tensor_transformer(SHAPE, kind == "gpt", size, dtype, sequence)

    def step(params, batch):
        loss, grads = jax.value_and_grad(compose(cut.layers))(params, batch)
        grads = jax.tree.map(
            lambda leaf, part: leaf[None] if part else leaf, grads, cut.partial
        )
        return loss[None], grads

    axes, each = devices.mesh(data=0, tensor=size), P("tensor")
    lie = jax.tree.map(
        lambda part, spec: each if part else spec, cut.partial, cut.specs
    )
    layout = {"in_specs": (cut.specs, P()), "out_specs": (each, lie)}
    spread = jax.shard_map(step, mesh=axes, check_vma=False, **layout)
    return jax.jit(spread).lower(params, batch).compile(), cut.partial


kept = cache(program)


def lost(kind, *args, made=kept, whole=lambda leaf: leaf.sum(axis=0), **options):
    """Return loss and grads of the model in parts, put together again."""
    params, batch, _ = given(kind)
    run, parts = made(kind, *args, **options)
    losses, grads = jax.device_get(run(params, batch))
    assert set(losses) == {losses[0]}  # all devices have the same
    return losses[0], jax.tree.map(
        lambda leaf, part: whole(leaf) if part else leaf, grads, parts
    )


def gap(kind, *args, **options):
    return apart(lost(kind, *args, **options), given(kind)[2])


def check_networks_in_parts_are_the_whole_ones():
    assert partition.partition_over(1, sequence=True) == partition.ONE_DEVICE
    for case in ("gpt", 2, False), ("gpt", 2, True), ("bert", 4, True):
        assert gap(*case) < CLOSE


def check_bfloat16_in_parts_is_near():
    found, grads = lost("gpt", 2, sequence=True, dtype="bfloat16")
    loss = given("gpt")[2][0]
    assert 0 < abs(found - loss) < 0.02 * loss
    assert {leaf.dtype for leaf in jax.tree.leaves(grads)} == {np.dtype("f4")}


def streams(sequence):
    """Count the whole streams that two devices send for GPT, by kind and backward."""
    found = collectives(kept("gpt", 2, sequence)[0].as_text())
    assert {one.size for one in found} == {2}
    whole = 4 * ROWS * SHAPE.length * SHAPE.width
    some = [one for one in found if one.nbytes == whole]
    return Counter((one.kind, "transpose" in one.op_name) for one in some)


def check_a_block_has_two_all_reduces_forward_and_two_backward_in_slices_halves():
    # and the embedding one forward, the head one backward
    assert streams(False) == {("all-reduce", False): 2 + 1, ("all-reduce", True): 2 + 1}
    halves = product(("all-gather", "reduce-scatter"), (False, True))
    assert streams(True) == dict.fromkeys(halves, 2 + 1)


def summed_by_jax(rows_RxD, count):
    return jax.lax.psum(rows_RxD, "tensor")


def early_bias(width, dot_general=None, real=linen.Dense, **options):
    """A Dense that adds its bias before the sum over devices."""
    plain, one = real(width, **options), np.eye(width, dtype="f4")
    if dot_general is None:
        return plain
    return lambda rows: dot_general(plain(rows), one, (((1,), (0,)), ((), ())))


def check_faults_of_sums_and_biases_are_seen():
    for where, name, wrong in (
        (partition, "sum_over_devices", summed_by_jax),  # a gradient is counted twice
        (linen, "Dense", early_bias),  # every device adds a bias
    ):
        with patch.object(where, name, wrong):
            assert gap("gpt", 2, made=program) > 100 * CLOSE
    # a part of a gradient is not the whole
    assert gap("gpt", 2, True, whole=itemgetter(0)) > 100 * CLOSE


RATE, SEED = 0.25, 5  # of dropout
MIXTURE = Mixture(DEVICES, SHAPE.width, 8, choices=2)
COUNT, BATCH, UPDATES = 24, 8, 5


@cache
def start(mixture):
    model = transformer(SHAPE, True, mixture=mixture)
    return jax.device_get(model.init(jax.random.key(0)))


def windows():
    rng = np.random.default_rng(1)
    text_NxL = rng.integers(0, SHAPE.vocabulary, (COUNT, 1 + SHAPE.length), np.int32)
    return Batch(text_NxL[:, :-1], text_NxL[:, 1:])


def trained(strategy, mixture=None, **options):
    """Return the losses of some updates and the gradient of the first."""
    examples = with_keys(Examples(COUNT, partial(take, windows())), SEED)
    problem = model_problem(
        transformer(SHAPE, True, mixture=mixture, dropout=RATE),
        start(mixture),
        examples=examples.count,
        take=examples.take,
    )
    steps = strategy(
        problem,
        draws(COUNT, BATCH, 0, BATCH * UPDATES),
        make("sgd", 1.0),
        comm=alone(),
        timer=Timer(),
        **options,
    )
    both = [(step.loss, jax.device_get(step.params())) for step in steps]
    grads = jax.tree.map(np.subtract, start(mixture), both[0][1])  # the rate is 1
    return [loss for loss, _ in both], grads


@cache
def on_one_device(mixture=None):
    return trained(serial, mixture)


def on_axes(mixture=None, schedule="1f1b", remat=False, slices=False, **sizes):
    """Train by hybrid on a mesh of these axes."""
    sizes = {"data": 1, "stage": 1, "tensor": 1} | sizes
    ring = sizes.get("sequence", 1)
    options = {"sequence": slices, "ring": ring, "mixture": mixture, "dropout": RATE}
    cut = tensor_transformer(SHAPE, True, sizes["tensor"], **options)
    pipeline = Pipeline(schedule, 2, remat=remat)
    return trained(
        hybrid, mixture, axes=devices.mesh(**sizes), pipeline=pipeline, tensor=cut
    )


def differs(found, mixture=None):
    """Return the largest difference to one device, of losses and of gradients."""
    losses, grads = on_one_device(mixture)
    assert len(found[0]) == UPDATES
    return max(np.abs(np.subtract(found[0], losses)).max(), apart(found[1], grads))


def check_positions_and_masks_over_devices_are_those_of_one():
    assert differs(on_axes(data=2, tensor=2, sequence=2)) < CLOSE
    assert differs(on_axes(data=2, stage=2, tensor=2, slices=True, remat=True)) < CLOSE


def check_experts_and_masks_over_devices_are_those_of_one():
    found = trained(mesh, MIXTURE, axes=devices.mesh(data=8))
    assert differs(found, MIXTURE) < CLOSE
    assert differs(on_axes(MIXTURE, data=2, stage=2, tensor=2), MIXTURE) < CLOSE


def check_masks_and_the_balance_of_experts_are_part_of_the_loss():
    first = take(windows(), next(draws(COUNT, BATCH, 0, BATCH)))
    # one block: without dropout the network is another one
    plain = jax.jit(transformer(SHAPE, True).loss)(start(None), first)
    assert abs(plain - on_one_device()[0][0]) > 100 * CLOSE
    model = transformer(SHAPE, True, mixture=MIXTURE._replace(factor=0.5))
    both = jax.jit(lambda *given: (model.loss(*given), model.metrics(*given)))
    loss, measures = both(start(MIXTURE), first)
    found = (loss - measures["cross_entropy"]) / MIXTURE.weight
    assert float(found) == pytest.approx(float(measures["balance"]), rel=1e-3)
    assert 1.0 < measures["balance"] < 2.0
    assert 0.5 <= measures["dropped"] < 1  # the capacity is half of the choices


def check_axes_that_do_not_go_together_are_refused():
    for says, call in [
        ("1 stage", partial(on_axes, data=2, stage=2, sequence=2)),
        ("no pipedream", partial(on_axes, data=4, sequence=2, schedule="pipedream")),
        ("on one device", partial(on_axes, MIXTURE, data=4, sequence=2)),
        ("causal", partial(tensor_transformer, SHAPE, False, 1, ring=2)),
        (
            "a length divisible by sequence:3",
            partial(tensor_transformer, SHAPE, True, 1, ring=3),
        ),
    ]:
        with pytest.raises(BadInput, match=says) as caught:
            call()
        assert "\n" not in str(caught.value)


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    run(CHECKS, DEVICES)
