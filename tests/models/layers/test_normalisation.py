import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from dml import sim
from dml.models.gradient import gradient
from dml.models.layers.normalisation import drift, norm
from dml.models.networks.classifier import classifier, head, mean_cross_entropy
from dml.strategies.synchronous import synchronous
from dml.types import Batch
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from tests.models.layers import normed


class Normed(linen.Module):
    """Nothing but a normalisation."""

    @linen.compact
    def __call__(self, inputs):
        return norm(self, jnp.float32)(name="norm")(inputs)


@functools.cache
def small():
    """A model, its params, none of which is 0, and a batch."""
    model = classifier({"part": Normed(), "head": head(4, jnp.float32)}, (3,))
    params = model.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(0.1), params)
    rng = np.random.default_rng(1)
    inputs = rng.normal([1, -2, 0], [1, 2, 0.5], (50, 3)).astype(np.float32)
    return model, params, Batch(inputs, rng.integers(0, 4, 50).astype(np.int32))


def scores(params, inputs, mean, var):
    """Return the logits, by hand."""
    scaled = (inputs - mean) / (var + 1e-5) ** 0.5
    part, head = params["part"]["norm"], params["head"]
    return (scaled * part["scale"] + part["bias"]) @ head["kernel"] + head["bias"]


def by_hand(params, batch):
    """Return the loss, in which running statistics have no part."""
    mean, var = batch.inputs.mean(axis=0), batch.inputs.var(axis=0)
    return mean_cross_entropy(scores(params, batch.inputs, mean, var), batch.targets)


def test_the_loss_and_all_gradients_but_the_statistics_are_those_without_them():
    model, params, batch = small()
    found, expected = (gradient(of, params, batch) for of in (model.loss, by_hand))
    # float32, and flax's variance is that of squares less the square of the mean
    assert found[0] == pytest.approx(float(expected[0]), rel=1e-5)
    statistics = found[1]["part"].pop("statistics")["norm"]
    expected[1]["part"].pop("statistics")
    for one, other in zip(*map(jax.tree.leaves, (found[1], expected[1])), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    mean, var = batch.inputs.mean(axis=0), batch.inputs.var(axis=0)
    running = params["part"]["statistics"]["norm"]
    np.testing.assert_allclose(statistics["mean"], running["mean"] - mean, rtol=1e-4)
    np.testing.assert_allclose(statistics["var"], running["var"] - var, rtol=1e-4)


def test_the_drift_is_0_to_the_bit_and_leaves_the_loss_alone():
    value, slope = jax.value_and_grad(drift)(
        {"mean": jnp.float32([3, 1e20])}, {"mean": jnp.float32([1, -5e18])}
    )
    assert value == 0
    assert slope["mean"].tolist() == np.float32([2, 1.05e20]).tolist()
    model, params, batch = small()
    moved = {"norm": {"mean": np.ones(3, "f4") * 7, "var": batch.inputs[0]}}
    far = params | {"part": params["part"] | {"statistics": moved}}
    losses = [gradient(model.loss, one, batch)[0] for one in (params, far)]
    assert losses[0] == losses[1]


def test_scores_and_metrics_use_the_running_statistics():
    model, params, batch = small()
    running = params["part"]["statistics"]["norm"]
    mean, var = (np.asarray(running[name]) for name in ("mean", "var"))
    expected = np.asarray(scores(params, batch.inputs, mean, var))
    found = jax.jit(model.scores)(params, batch.inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    metrics = jax.jit(model.metrics)(params, batch)
    chances = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    lost = -np.log(chances[np.arange(50), batch.targets]).mean()
    assert metrics["cross_entropy"] == pytest.approx(lost, rel=1e-5)
    right = (np.argmax(expected, axis=1) == batch.targets).mean()
    assert metrics["accuracy"] == pytest.approx(right)


def test_statistics_of_bfloat16_are_summed_and_stored_in_float32():
    """5000 numbers of about 10: a sum in bfloat16 would stop at 2048."""
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(10, 1, (5000, 3)), jnp.bfloat16)

    class Half(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            return norm(self, jnp.bfloat16)(name="norm")(inputs)

    module = Half()
    variables = module.init(jax.random.key(0), rows)
    outputs, changed = module.apply(variables, rows, mutable=["batch_stats"])
    doubles = np.asarray(rows, np.float64)
    found = changed["batch_stats"]["norm"]
    assert outputs.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in found.values()} == {jnp.dtype("float32")}
    np.testing.assert_allclose(found["mean"], doubles.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found["var"], doubles.var(axis=0), rtol=1e-3)


@functools.cache
def on_two_ranks(dtype, bucket_mb):
    def rank(comm):
        own = {"reducer": exact(ALLREDUCE["ring"]), "bucket_mb": bucket_mb}
        return normed.train(synchronous, dtype, comm=Metered(comm), **own)

    return sim.run(rank, 2)


@pytest.mark.parametrize("bucket_mb", (0.0, 1e-9))
def test_ranks_in_bfloat16_have_equal_statistics_near_those_of_float32(bucket_mb):
    (losses, first), (_, second) = on_two_ranks("bfloat16", bucket_mb)
    (expected, params), _ = on_two_ranks("float32", 0.0)
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.02)
    for name, leaf in normed.statistics(first).items():
        assert leaf.dtype == np.float32
        assert np.array_equal(leaf, normed.statistics(second)[name])
        np.testing.assert_allclose(leaf, normed.statistics(params)[name], atol=0.02)
