"""Dropout: masks of tokens, and training whose bits do not depend on the ranks."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import draws, take
from dml.data.text.windows import with_keys
from dml.metrics.timer import Timer
from dml.models.layers.dropout import dropout_of, keep_all, masks
from dml.models.layers.partition import ONE_DEVICE
from dml.models.model_problem import model_problem
from dml.models.networks.transformer import Shape, transformer
from dml.strategies.synchronous import synchronous
from dml.types import Batch, Examples, KeyedTokens
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.names import reducer

pytestmark = pytest.mark.usefixtures("quick")
SHAPE = Shape(vocabulary=11, length=6, layers=1, width=8, heads=2)
COUNT, BATCH, UPDATES, RATE = 10, 8, 3, 0.3


@cache
def examples():
    rng = np.random.default_rng(0)
    tokens_NxL = rng.integers(0, 11, (COUNT, 7), np.int32)
    plain = partial(take, Batch(tokens_NxL[:, :-1], tokens_NxL[:, 1:]))
    return with_keys(Examples(COUNT, plain), seed=0)


@cache  # one optimizer, one compilation
def adam():
    return make("adam", 0.01)


@cache
def model(rate=RATE, remat=False):
    return transformer(SHAPE, True, dropout=rate, remat=remat)


def trained(comm, start=0, params=None, state=None, remat=False, **options):
    """Return (loss, params, state) of each update from `start` on, with four shards."""
    network = model(remat=remat)
    steps = synchronous(
        model_problem(
            network,
            params or jax.device_get(network.init(jax.random.key(0))),
            examples=COUNT,
            take=examples().take,
        ),
        draws(COUNT, BATCH, 0, BATCH * UPDATES, BATCH * start),
        adam(),
        comm=Metered(comm),
        timer=Timer(),
        reducer=reducer("order_free", ALLREDUCE["star"]),
        shards=4,
        state=state,
        **options,
    )
    return [
        (step.loss, *jax.device_get((step.params(), step.state()))) for step in steps
    ]


@cache
def on_one_rank():
    return sim.run(trained, 1)[0]


def equal(one, other):
    leaves = map(jax.tree.leaves, (one, other))
    return all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


def test_masks_have_the_rate_and_belong_to_a_key_and_a_place():
    keys_R = jnp.asarray(np.random.default_rng(0).integers(2**32, size=400, dtype="u4"))
    keep_RxD = masks(keys_R, 3, RATE, 64)
    # standard deviation 0.003
    assert np.mean(keep_RxD) == pytest.approx(1 - RATE, abs=0.012)
    assert np.array_equal(masks(keys_R[5:9], 3, RATE, 64), keep_RxD[5:9])
    for other in (masks(keys_R, 4, RATE, 64), np.roll(keep_RxD, 1, axis=0)):
        agree = np.mean(keep_RxD == other)
        assert agree == pytest.approx(RATE**2 + (1 - RATE) ** 2, abs=0.012)


def test_kept_elements_are_scaled_in_the_dtype_of_the_rows():
    inputs = KeyedTokens(np.zeros((2, 3), "i4"), np.arange(6, dtype="u4").reshape(2, 3))
    for dtype in (jnp.float32, jnp.bfloat16):
        rows_RxD = dropout_of(inputs, 1, 0.5, ONE_DEVICE)(jnp.ones((6, 50), dtype), 0)
        assert rows_RxD.dtype == dtype
        assert set(np.unique(rows_RxD)) == {0, 2}
    outputs = {
        dropout_of(inputs, layer, 0.5, ONE_DEVICE)(jnp.ones((6, 50)), place).tobytes()
        for layer in range(3)
        for place in range(2)
    }
    assert len(outputs) == 3 * 2
    assert dropout_of(inputs.tokens, 1, 0.5, ONE_DEVICE) is keep_all
    assert dropout_of(inputs, 1, 0.0, ONE_DEVICE) is keep_all


def test_batches_without_keys_have_no_dropout():
    batch = examples().take(np.arange(COUNT))
    plain = batch._replace(inputs=batch.inputs.tokens)
    params = model().init(jax.random.key(1))
    losses = [
        float(jax.jit(network.loss)(params, one))
        for network, one in ((model(), plain), (model(0.0), batch), (model(), batch))
    ]
    assert losses[0] == losses[1] != losses[2]


def test_the_gradient_is_the_slope_of_the_loss_with_the_same_masks():
    batch = examples().take(np.arange(COUNT))
    rng = np.random.default_rng(0)
    params, way = (
        jax.tree.map(
            lambda leaf: rng.normal(0, 0.3, leaf.shape).astype("f4"),
            model().init(jax.random.key(0)),
        )
        for _ in range(2)
    )
    loss = jax.jit(model().loss)
    ends = [
        loss(jax.tree.map(lambda p, w, s=sign: p + s * 0.01 * w, params, way), batch)
        for sign in (1, -1)
    ]
    grads = jax.jit(jax.grad(model().loss))(params, batch)
    slope = sum(map(np.vdot, *map(jax.tree.leaves, (grads, way))))
    assert (ends[0] - ends[1]) / 0.02 == pytest.approx(slope, rel=0.01)


def test_training_has_equal_bits_on_any_number_of_ranks_and_after_a_resume():
    whole = on_one_rank()
    for found in sim.run(trained, 4):
        assert equal(found, whole)
    _, params, state = whole[0]
    again = sim.run(partial(trained, start=1, params=params, state=state), 2)
    assert equal(again[0], whole[1:])


@pytest.mark.parametrize("options", ({"bucket_mb": 1e-9}, {"remat": True}), ids=str)
def test_layers_apart_and_recomputed_layers_have_the_same_masks(options):
    (found,) = sim.run(partial(trained, **options), 1)
    for (loss, *_), (other, *_) in zip(on_one_rank(), found, strict=True):
        assert other == pytest.approx(loss, rel=1e-5)
