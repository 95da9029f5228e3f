"""The curvature of dense layers, against gradients of single examples."""

from functools import cache

import jax
import numpy as np
import pytest

from dml.models.curvature import dense_layers_with_bias, gradient_curvature
from dml.models.factors import dense_layers
from dml.models.gradient import gradient
from dml.models.layers.blocks import Shape
from dml.models.networks.mlp import mlp
from dml.models.networks.transformer import transformer
from dml.types import Batch
from dml.wire.costs.factors import ProductSizes
from dml.wire.plans.curvature import Layer

EXAMPLES = 7


@cache
def network():
    model = mlp((5,), 3, (4,))
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((EXAMPLES, 5)).astype(np.float32)
    return model, model.init(jax.random.key(1)), Batch(inputs, np.arange(EXAMPLES) % 3)


def test_curvature_is_the_mean_over_gradients_of_single_examples():
    model, params, batch = network()
    layers = dense_layers_with_bias(dense_layers(model.loss, params, batch), params)
    value, (grads, pairs) = gradient_curvature(model.loss, layers, params, batch)
    assert [layer.kernel for layer in layers] == ["head/kernel", "hidden_00/kernel"]
    expected, full = gradient(model.loss, params, batch)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for leaf, other in zip(*map(jax.tree.leaves, (grads, full)), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-7)
    singles = [
        gradient(
            model.loss, params, Batch(batch.inputs[n : n + 1], batch.targets[n : n + 1])
        )[1]
        for n in range(EXAMPLES)
    ]
    hidden = np.maximum(
        batch.inputs @ params["hidden_00"]["kernel"] + params["hidden_00"]["bias"], 0
    )
    ones = np.ones((EXAMPLES, 1))
    for name, inputs, pair in zip(
        ("head", "hidden_00"), (hidden, batch.inputs), pairs, strict=True
    ):
        extended = np.hstack([inputs, ones])
        outputs = np.array([np.asarray(one[name]["bias"]) for one in singles])
        np.testing.assert_allclose(
            pair[0], extended.T @ extended / EXAMPLES, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            pair[1], outputs.T @ outputs / EXAMPLES, rtol=1e-4, atol=1e-6
        )


def test_tables_and_norms_have_no_curvature():
    shape = Shape(vocabulary=11, length=3, layers=1, width=4, heads=2)
    model = transformer(shape, causal=True)
    tokens = np.zeros((2, 3), np.int32)
    params = model.init(jax.random.key(0))
    kernels = dense_layers(model.loss, params, Batch(tokens, tokens))
    layers = dense_layers_with_bias(kernels, params)
    sizes = {layer.kernel: layer.sizes for layer in layers}  # with a bias: 4 + 1 inputs
    assert sizes == {
        "block_0/down/kernel": Layer(17, 4),
        "block_0/out/kernel": Layer(5, 4),
        "block_0/qkv/kernel": Layer(5, 12),
        "block_0/up/kernel": Layer(5, 16),
    }


@pytest.mark.parametrize("units, expected", [(3, ""), (2, "a/bias")])
def test_a_bias_has_an_element_for_each_output(units, expected):
    kernel = np.zeros((4, 2))
    params = {"a": {"kernel": kernel, "bias": np.zeros(units)}}
    (layer,) = dense_layers_with_bias({"a/kernel": ProductSizes(1, 4, 2)}, params)
    assert layer.bias == expected
    assert layer.sizes == Layer(4 + bool(expected), 2)


def test_a_bias_of_two_kernels_belongs_to_neither():
    kernel = np.zeros((4, 2))
    params = {"a": {"bias": np.zeros(2), "input": kernel, "recurrent": kernel}}
    kernels = {f"a/{name}": ProductSizes(1, 4, 2) for name in ("input", "recurrent")}
    layers = dense_layers_with_bias(kernels, params)
    assert [layer[1:] for layer in layers] == [("", Layer(4, 2))] * 2
