"""Updates layer by layer have the bits of updates of the full tree."""

import jax
import numpy as np
import pytest

from dml.update.dense import apply, make
from dml.update.layers import (
    apply_layer,
    companion,
    join_states,
    separable,
    split_state,
)
from tests.strategies.small import apart, start_params


def gradients(seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: np.asarray(rng.standard_normal(leaf.shape), np.float32),
        start_params(),
    )


# the states of the other optimizers have the structure of one of these
NAMES = "sgd", "momentum", "adamw", "nadam", "rmsprop", "lars", "lamb", "muon"


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_updated_with_the_bits_of_the_full_tree(name):
    optimizer = make(name, 0.01, decay=0.1, like=start_params())
    full, full_state = start_params(), optimizer.init(start_params())
    parts = dict(full)
    states = split_state(optimizer, full)
    for seed in range(3):
        grads = gradients(seed)
        for layer in parts:
            new, states[layer], _ = apply_layer(
                optimizer,
                companion(full, layer),
                {layer: grads[layer]},
                states[layer],
                {layer: parts[layer]},
            )
            parts |= new
        full, full_state = apply(optimizer, grads, full_state, full)
    # muon's factors of one matrix are fused otherwise than those of several
    tolerance = 1e-6 if name == "muon" else 0
    assert apart(full, parts) <= tolerance
    joined = join_states(optimizer, full, states)
    assert jax.tree.structure(joined) == jax.tree.structure(full_state)
    for one, other in zip(
        jax.tree.leaves(joined), jax.tree.leaves(full_state), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    again = split_state(optimizer, full, joined)
    assert jax.tree.structure(again) == jax.tree.structure(states)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(states), strict=True):
        np.testing.assert_array_equal(one, other)


def test_optimizers_that_join_layers_are_found():
    for name in ("sgd", "adam", "lion", "lamb"):
        assert separable(make(name, 0.01), start_params())
        assert not separable(make(name, 0.01, clip=1.0), start_params())
    assert not separable(make("sgd", 0.01, clip=1e9), start_params())
