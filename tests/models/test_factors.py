"""Factors of the gradients of dense layers."""

from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.models.factors import dense_layers, gradient_factors, multiply, path_name
from dml.models.gradient import gradient
from dml.models.layers.blocks import Shape
from dml.models.networks.alexnet import (
    PUBLISHED,
    TOWERS,
    Placement,
    network,
    network_layers,
)
from dml.models.networks.alexnet import AlexNetSizes as Maps
from dml.models.networks.mlp import mlp
from dml.models.networks.transformer import transformer
from dml.types import Batch, identity
from dml.wire.costs.factors import ProductSizes

EXAMPLES, TOKENS, MASKED = 6, 8, 3
BERT = Shape(vocabulary=30, length=TOKENS, layers=1, width=8, heads=2)
BLOCK = ("qkv", "out", "up", "down")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)  # compiles in half of it
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def plain_loss(params, batch):
    """Two dense layers without modules, of which the first has no bias."""
    hidden = jnp.tanh(batch.inputs @ params["first"])
    return jnp.mean((jnp.einsum("ki,oi->ko", hidden, params["second"])) ** 2)


def plain_params(key):
    keys = jax.random.split(key)
    return {
        "first": jax.random.normal(keys[0], (9, 5)),
        "second": jax.random.normal(keys[1], (4, 5)),  # outputs before inputs
    }


def images(*shape):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((EXAMPLES, *shape)).astype(np.float32)
    return Batch(inputs, rng.integers(0, 4, EXAMPLES).astype(np.int32))


def masked():
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, BERT.vocabulary, (EXAMPLES, TOKENS))
    positions = np.stack([rng.permutation(TOKENS)[:MASKED] for _ in range(EXAMPLES)])
    return Batch(tokens, (positions, np.take_along_axis(tokens, positions, 1)))


def case(model, batch, kernels):
    return model.loss, model.init, batch, kernels


BLOCKS = {f"block_0/{part}/kernel" for part in BLOCK}
CASES = {
    "plain": (plain_loss, plain_params, images(9), {"first", "second"}),
    "mlp": case(
        mlp((9,), 4, (7, 5)),
        images(9),
        {"hidden_00/kernel", "hidden_01/kernel", "head/kernel"},
    ),
    "alexnet": case(
        # of both towers: the last convolution, and the dense layers
        network(
            network_layers((8, 8, 1), 4, Maps(2, 3, 1), PUBLISHED)[4:],
            Placement(TOWERS, identity, identity),
        ),
        images(2, 2, 24),
        {"layer_2/kernel", "layer_3/kernel", "layer_4/kernel"},
    ),
    "bert": case(
        transformer(BERT, False, remat=True), masked(), BLOCKS | {"head/dense/kernel"}
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_factors_multiply_to_the_gradients_of_dense_layers(kind):
    loss, init, batch, kernels = CASES[kind]
    params = init(jax.random.key(2))
    exact_loss, exact = gradient(loss, params, batch)
    value, rest, factors = gradient_factors(loss, params, batch)
    np.testing.assert_allclose(value, exact_loss, rtol=1e-6)
    assert factors.keys() == kernels
    leaves = jax.tree_util.tree_flatten_with_path(exact)[0]
    others = jax.tree.leaves(rest, is_leaf=lambda leaf: leaf is None)
    for (path, grad), other in zip(leaves, others, strict=True):
        if path_name(path) in kernels:
            assert other is None
            other = multiply(factors[path_name(path)], grad.shape)
        scale = np.abs(grad).max() + 1e-12
        np.testing.assert_allclose(other, grad, rtol=2e-4, atol=2e-5 * scale)


def test_rows_are_examples_or_tokens_and_biases_are_sums_of_rows():
    loss, init, batch, _ = CASES["bert"]
    _, rest, factors = gradient_factors(loss, init(jax.random.key(3)), batch)
    inputs, outputs = factors["block_0/up/kernel"]
    assert inputs.shape == (EXAMPLES * TOKENS, BERT.width)
    assert outputs.shape == (EXAMPLES * TOKENS, 4 * BERT.width)
    # the head reads the masked tokens only
    assert factors["head/dense/kernel"].inputs_KxM.shape[0] == EXAMPLES * MASKED
    for part in BLOCK:
        bias = rest["block_0"][part]["bias"]
        sums = factors[f"block_0/{part}/kernel"].outputs_KxN.sum(0)
        np.testing.assert_allclose(sums, bias, rtol=1e-4, atol=1e-7)


def test_inputs_are_those_of_the_layer_and_outputs_contain_the_mean():
    loss, init, batch, _ = CASES["plain"]
    params = init(jax.random.key(4))
    _, _, factors = gradient_factors(loss, params, batch)
    assert np.array_equal(factors["first"].inputs_KxM, batch.inputs)
    doubled = Batch(*(np.concatenate([array, array]) for array in batch))
    _, _, again = gradient_factors(loss, params, doubled)
    np.testing.assert_allclose(
        2 * again["first"].outputs_KxN[:EXAMPLES],
        factors["first"].outputs_KxN,
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize("kind", ["mlp", "alexnet", "bert"])
def test_no_gradient_of_a_kernel_with_factors_is_computed(kind):
    loss, init, batch, kernels = CASES[kind]
    params = init(jax.random.key(5))

    def program(kernels):
        traced = jax.make_jaxpr(gradient_factors, static_argnums=(0, 3))
        return primitives(traced(loss, params, batch, kernels).jaxpr)

    summed, factors = program(frozenset()), program(None)
    assert products(summed) - products(factors) == len(kernels)
    # without barriers XLA would keep the activations that a checkpoint computes again
    plain = primitives(jax.make_jaxpr(jax.value_and_grad(loss))(params, batch).jaxpr)
    checkpoints = plain["checkpoint"] + plain["remat2"]
    barriers = factors["optimization_barrier"] - plain["optimization_barrier"]
    assert barriers == checkpoints and (checkpoints > 0) == (kind == "bert")


def products(counts):
    return counts["dot_general"] + counts["conv_general_dilated"]


def primitives(jaxpr):
    """Return the number of equations of a program by primitive."""
    counts = Counter(equation.primitive.name for equation in jaxpr.eqns)
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            counts += primitives(inner) if hasattr(inner, "eqns") else Counter()
    return counts


def test_chosen_kernels_have_factors_and_others_do_not():
    loss, init, batch, _ = CASES["mlp"]
    params = init(jax.random.key(6))
    assert dense_layers(loss, params, batch) == {
        "hidden_00/kernel": ProductSizes(EXAMPLES, 9, 7),
        "hidden_01/kernel": ProductSizes(EXAMPLES, 7, 5),
        "head/kernel": ProductSizes(EXAMPLES, 5, 4),
    }
    chosen = frozenset(["hidden_01/kernel"])
    traced = jax.eval_shape(
        lambda *args: gradient_factors(loss, *args, chosen), params, batch
    )
    _, grads, factors = traced
    assert factors.keys() == chosen
    assert grads["hidden_01"]["kernel"] is None
    assert grads["head"]["kernel"].shape == (5, 4)


def test_gradients_that_are_not_one_product_have_no_factors():
    def loss(params, batch):
        hidden = jnp.tanh(batch.inputs @ params["shared"])
        hidden = jnp.tanh(hidden @ params["shared"])
        groups = jnp.einsum("gki,gio->gko", jnp.stack([hidden] * 3), params["groups"])
        mixed = jnp.einsum("ki,gio->gko", hidden, params["mixed"])
        groups += jnp.einsum("gki,goi->gko", jnp.stack([hidden] * 3), params["turned"])
        # of the filter, only the centre reads the single pixel
        pixels_Kx1x1xI = hidden[:, None, None]
        filtered = jax.lax.conv_general_dilated(
            pixels_Kx1x1xI,
            params["filter"],
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return jnp.mean(groups**2) + jnp.mean(mixed**2) + jnp.mean(filtered**2)

    three = jnp.ones((3, 9, 2))
    params = {"shared": jnp.eye(9), "groups": three, "mixed": three}
    params |= {"filter": jnp.ones((3, 3, 9, 2)), "turned": jnp.ones((3, 2, 9))}
    assert dense_layers(loss, params, images(9)) == {}


def test_bfloat16_arithmetic_has_factors_of_bfloat16():
    model = mlp((9,), 4, (7,), dtype="bfloat16")
    params = model.init(jax.random.key(7))
    traced = jax.eval_shape(partial(gradient_factors, model.loss), params, images(9))
    assert {leaf.dtype for leaf in jax.tree.leaves(traced[2])} == {
        jnp.dtype(jnp.bfloat16)
    }
