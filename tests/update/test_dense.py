import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, apply, make


def quadratic(params):
    return jnp.sum((params["w"] - 1) ** 2) + jnp.sum((params["b"] + 2) ** 2)


def start():
    return {"w": jnp.arange(2.0, 8.0).reshape(2, 3), "b": jnp.ones(2)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_down_on_a_quadratic(name):
    params, optimizer = start(), make(name, 0.02)
    state = optimizer.init(params)
    losses = []
    for _ in range(60):
        loss, grads = jax.value_and_grad(quadratic)(params)
        losses.append(float(loss))
        params, state = apply(optimizer, grads, state, params)
    # means of a third: momentum swings through the minimum
    first, second, third = np.mean(np.reshape(losses, (3, 20)), axis=1)
    assert first > second > third


def test_every_optimizer_is_one_of_its_own():
    ends = set()
    for name in OPTIMIZERS:
        params, optimizer = start(), make(name, 0.02)
        state = optimizer.init(params)
        for _ in range(3):
            params, state = apply(optimizer, jax.grad(quadratic)(params), state, params)
        ends.add(np.asarray(params["w"]).tobytes())
    assert len(ends) == len(OPTIMIZERS)


def test_sgd_is_a_step_down_the_gradient():
    optimizer = make("sgd", 0.5)
    params, grads = {"w": jnp.array([1.0, 2.0])}, {"w": np.float32([4.0, -2.0])}
    moved, _ = apply(optimizer, grads, optimizer.init(params), params)
    assert moved["w"].tolist() == [-1.0, 3.0]


def test_params_outlive_the_update_and_state_does_not():
    optimizer, params = make("adam", 0.1), start()
    state = optimizer.init(params)
    apply(optimizer, start(), state, params)
    assert params["w"].tolist() == start()["w"].tolist()
    assert jax.tree.leaves(state)[1].is_deleted()


def test_an_unknown_optimizer_is_bad_input_that_lists_the_known():
    with pytest.raises(BadInput, match="sgd, momentum, .* got 'sdg'; pass --opt"):
        make("sdg", 0.1)
