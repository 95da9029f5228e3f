"""Code that reads traced programs, with the forms of primitives of this process."""

import jax
import jax.numpy as jnp
import numpy as np

from dml.models.factors import gradient_factors, multiply
from dml.models.products import evaluate
from dml.strategies.hybrid.split import split_backward

RNG = np.random.default_rng(0)
PARAMS = dict(zip("ab", jnp.float32(RNG.normal(size=(2, 5, 5))), strict=True))
INPUTS = jnp.float32(RNG.normal(size=(3, 5)))


def layer(params, inputs):
    hidden = jax.nn.relu(inputs @ params["a"])  # relu has a derivative of its own
    return jax.nn.gelu(hidden) @ params["b"]


def loss(params, inputs):
    return (jax.checkpoint(layer)(params, inputs) ** 2).mean()


def near(found, expected):
    jax.tree.map(
        lambda *both: np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-7),
        found,
        expected,
    )


def check_factors():
    value, grads, factors = gradient_factors(loss, PARAMS, INPUTS)
    assert factors.keys() == PARAMS.keys() and not jax.tree.leaves(grads)
    products = {name: multiply(pair, (5, 5)) for name, pair in factors.items()}
    near((value, products), jax.value_and_grad(loss)(PARAMS, INPUTS))


def check_split():
    call = jax.checkpoint(layer)
    output, vjp = jax.vjp(call, PARAMS, INPUTS)

    def backward(params, inputs, grad):
        return jax.vjp(call, params, inputs)[1](grad)

    split = split_backward(backward, PARAMS, INPUTS, output)
    input_grad, deferred = split.input_grad(PARAMS, INPUTS, output)
    grads = split.weight_grad(PARAMS, INPUTS, deferred)
    near((grads, input_grad), vjp(output))


def check_scan():
    def powers(matrix, inputs):
        step = lambda carry, _: (carry @ matrix, carry.sum())  # noqa: E731
        return jax.lax.scan(step, inputs, None, length=3)

    closed = jax.make_jaxpr(powers)(PARAMS["a"], INPUTS)
    found = evaluate(closed.jaxpr, closed.consts, [PARAMS["a"], INPUTS])
    near(found, jax.tree.leaves(powers(PARAMS["a"], INPUTS)))


if __name__ == "__main__":
    check_factors()
    check_split()
    check_scan()
