import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, apply, make
from tests.update.sliced_main import OPTIONS, draw, flat, gradients, train

ROOT = Path(__file__).parents[2]


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


OWN = {
    "adamw": optax.adamw(0.1, weight_decay=0.1),
    "lamb": optax.lamb(0.1, weight_decay=0.1),
    "lars": optax.lars(0.1, weight_decay=0.1),
    "momentum": optax.chain(
        optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9)
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_with_clipping_and_decay_matrices_move_as_optax_moves_them(name):
    params, *grads = ({"deep": t["deep"], "w": t["w"]} for t in (draw(0), *gradients()))
    own = optax.chain(optax.clip_by_global_norm(OPTIONS["clip"]), OWN[name])
    rules = make(name, 0.1, **OPTIONS), own
    ended, expected = jax.jit(lambda *lists: [train(one, *lists) for one in rules])(
        params, grads
    )
    for leaf, own in zip(*map(jax.tree.leaves, (ended, expected)), strict=True):
        # XLA fuses the two otherwise: some numbers differ by their last bit
        np.testing.assert_allclose(leaf, own, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["adamw", "lion", "adam"])
def test_without_a_decay_it_is_optaxs_own_and_with_0_there_is_none(name):
    params, grads = {"w": draw(0)["w"]}, [{"w": np.zeros((4, 4), np.float32)}]
    rules = make(name, 0.1), getattr(optax, name)(0.1), make(name, 0.1, decay=0.0)
    mine, own, none = (np.asarray(train(rule, params, grads)["w"]) for rule in rules)
    assert np.array_equal(mine, own)
    assert np.array_equal(none, params["w"])
    assert np.array_equal(mine, none) == (name == "adam")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_decay_and_no_trust_ratio_reach_vectors(name):
    params, grads = {"b": draw(0)["b"]}, [{"b": draw(1)["b"]}]
    one = train(make(name, 0.1, decay=0.5), params, grads)
    other = train(make(name, 0.1, decay=0.0), params, grads)
    assert np.array_equal(one["b"], other["b"])
    same = {"lars": make("momentum", 0.1), "lamb": optax.adam(0.1, eps=1e-6)}.get(name)
    if same:
        expected = np.asarray(train(same, params, grads)["b"])
        assert np.asarray(one["b"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["momentum", "lars"])
def test_statistics_follow_the_batch_by_a_tenth_and_touch_nothing_else(name):
    params, (grads, *_) = draw(0), gradients()
    loud = grads | {"statistics": {"mean": np.float32([1e6, -1e6, 0])}}
    optimizer = make(name, 0.0, **OPTIONS)
    ended = train(optimizer, params, [grads, grads])
    for leaf, before in zip(
        jax.tree.leaves(ended), jax.tree.leaves(params), strict=True
    ):
        if leaf.shape != (3,):
            assert np.array_equal(leaf, before)
    follow, batch = params["statistics"]["mean"], np.float32([1, 2, 3])
    optimizer = make(name, lambda step: 0.01 * step, **OPTIONS)
    state = optimizer.init(params)
    for _ in range(2):
        own = {"statistics": {"mean": params["statistics"]["mean"] - batch}}
        updates, state = optimizer.update(grads | own, state, params)
        params = optax.apply_updates(params, updates)
        follow = 0.9 * follow + 0.1 * batch
    assert np.asarray(params["statistics"]["mean"]) == pytest.approx(follow, rel=1e-6)
    moved = [train(make(name, 0.1, **OPTIONS), draw(0), [g]) for g in (grads, loud)]
    assert np.array_equal(moved[0]["w"], moved[1]["w"])


def test_slices_on_4_devices_move_as_the_whole_does(tmp_path):
    path = str(tmp_path / "ends.npz")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.update.sliced_main", path],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    lists = draw(0), gradients()
    norms = [float(optax.tree.norm(grads)) for grads in lists[1]]
    assert norms[0] < OPTIONS["clip"] < norms[-1]
    every = jax.jit(
        lambda *lists: {
            name: train(make(name, 0.1, **OPTIONS), *lists) for name in OPTIMIZERS
        }
    )
    with np.load(path) as found:
        for at, leaf in jax.tree_util.tree_leaves_with_path(every(*lists)):
            name = jax.tree_util.keystr(at)
            # float32: sums of squares in another order, through 2 updates
            np.testing.assert_allclose(
                found[name], flat(leaf), 2e-5, 1e-6, err_msg=name
            )


def test_slices_without_the_shapes_of_the_whole_are_bad_input():
    with pytest.raises(BadInput, match="shapes of full params .* pass like"):
        make("lamb", 0.1, axis="data")
