"""The policy of actors and learners."""

import jax
import numpy as np
import pytest

from dml.models.policies.network import act, mlp_policy, sample
from dml.types import BadInput

SHAPE, ACTIONS = (2, 3), 3


def perturbed(widths, seed=0):
    """Return params of which none is zero or small."""
    params = mlp_policy(SHAPE, ACTIONS, widths).init(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f"), params)


@pytest.mark.parametrize("widths", [(), (7,), (16, 5)])
def test_actors_and_learners_have_equal_logits(widths):
    params = perturbed(widths)
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(9, *SHAPE)).astype("f")
    _, logits = act(params, observations, rng.random(9).astype("f"))
    expected, values = mlp_policy(SHAPE, ACTIONS, widths).apply(params, observations)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert values.shape == (9,)


def test_logits_of_an_observation_do_not_depend_on_the_batch():
    params = perturbed((16, 5))
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(33, *SHAPE)).astype("f")
    draws = rng.random(33).astype("f")
    actions, logits = act(params, observations, draws)
    for n in (0, 7, 32):
        alone = act(params, observations[n : n + 1], draws[n : n + 1])
        assert alone[0][0] == actions[n]
        assert alone[1][0].tobytes() == logits[n].tobytes()


def test_draws_that_are_evenly_spaced_give_actions_by_their_probabilities():
    probabilities = np.array([0.25, 0.5, 0.125, 0.125])
    count = 1024
    draws = (np.arange(count) / count).astype("f")
    logits = np.tile(np.log(probabilities).astype("f") + 3, (count, 1))
    counts = np.bincount(sample(logits, draws), minlength=4) / count
    np.testing.assert_allclose(counts, probabilities, atol=1.5 / count)


def test_all_actions_are_almost_equally_likely_at_first():
    params = mlp_policy(SHAPE, ACTIONS).init(jax.random.key(0))
    observations = np.ones((1, *SHAPE), "f")
    _, logits = act(params, observations, np.zeros(1, "f"))
    assert 0 < np.ptp(logits) < 0.1


def test_a_network_without_units_is_refused():
    with pytest.raises(BadInput, match="positive sizes"):
        mlp_policy(SHAPE, ACTIONS, (0,))
