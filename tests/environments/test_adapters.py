"""Environments of other packages keep the contract; skipped without the extra `rl`."""

import numpy as np
import pytest

from dml.environments.adapters import adapted
from dml.environments.named import find
from dml.types import BadInput
from tests.environments.play import chooser, trajectory

CARTPOLES = ["gymnasium:CartPole-v1", "envpool:CartPole-v1", "gymnax:CartPole-v1"]
NAMES = [
    *CARTPOLES,
    "minatar:breakout",
    "gymnasium:MinAtar/Breakout-v1",
    "gymnasium:ALE/Breakout-v5",
]
MODULES = {"MinAtar": "minatar", "ALE": "ale_py"}
pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages


@pytest.fixture
def environment(request):
    package, _, name = request.param.partition(":")
    pytest.importorskip(package)
    if "/" in name:
        pytest.importorskip(MODULES[name.partition("/")[0]])
    return find(request.param)


@pytest.mark.parametrize("environment", NAMES, indirect=True)
def test_an_adapter_keeps_the_contract(environment):
    seeds, steps = [3, 2, 14], 60
    choose = chooser(environment.actions)
    seen, rewards, terminated, truncated = trajectory(environment, seeds, choose, steps)
    assert seen.shape == (steps + 1, 3, *environment.shape)
    assert seen.dtype == rewards.dtype == np.float32
    assert (seen >= 0).all() and (seen <= 1).all() or len(environment.shape) == 1
    ends = terminated | truncated
    assert not (rewards[1:][ends[:-1]].any() or ends[1:][ends[:-1]].any())
    assert ends.any() or "ALE" in environment.name
    # a copy alone
    apart = trajectory(environment, seeds[1:2], choose, steps)
    for one, other in zip(apart, (seen, rewards, terminated, truncated), strict=True):
        assert one[:, 0].tobytes() == other[:, 1].tobytes()


@pytest.mark.parametrize("environment", CARTPOLES, indirect=True)
def test_a_pole_that_falls_is_terminated_in_its_last_state(environment):
    copies = environment.make(range(4))
    copies.reset()
    reset, fallen = np.zeros(4, bool), 0
    starts = []
    for _ in range(60):
        outcome = copies.step(np.ones(4, int))
        x, _, angle, _ = outcome.observations.T
        out = (abs(x) > 2.4) | (abs(angle) > np.radians(12))
        assert np.array_equal(outcome.terminated, out)
        assert np.array_equal(outcome.rewards, np.where(reset, 0, 1))
        assert (abs(outcome.observations[reset]) <= 0.05).all()
        starts += [tuple(first) for first in outcome.observations[reset]]
        reset = outcome.terminated.copy()
        fallen += reset.sum()
    assert fallen > 4 and not outcome.truncated.any()
    assert len(set(starts)) == len(starts) > 8  # episodes differ


@pytest.mark.parametrize("environment", CARTPOLES, indirect=True)
def test_a_pole_that_stands_is_truncated_after_500_steps(environment):
    copies = environment.make(range(3))
    seen = copies.reset()
    weights = np.array([0.1, 0.5, 3.0, 1.0], np.float32)
    for t in range(1, 501):
        outcome = copies.step((seen @ weights > 0).astype(int))
        seen = outcome.observations
        assert not outcome.terminated.any()
        assert outcome.truncated.all() == outcome.truncated.any() == (t == 500)
    outcome = copies.step(np.zeros(3, int))
    assert not (outcome.rewards.any() or outcome.truncated.any())
    assert (abs(outcome.observations) <= 0.05).all()


@pytest.mark.parametrize("environment", ["gymnasium:CartPole-v1"], indirect=True)
def test_the_step_of_gymnasium_is_that_of_the_compiled_environment(environment):
    """Both ends of the adapter at once: actions, observations, rewards, ends."""
    copies, own = environment.make([1]), find("cartpole").make([1])
    copies.reset(), own.reset()
    gymnasium_state = copies.advance.__self__.envs[0].unwrapped
    own.state[:, 0] = gymnasium_state.state
    for t in range(100):
        one, other = (c.step(np.array([t // 2 % 2])) for c in (copies, own))
        for left, right in zip(one, other, strict=True):
            assert np.allclose(left, right, atol=1e-6)
        if one.terminated[0]:
            break
    assert t > 5


@pytest.mark.parametrize(
    "name, message",
    [
        ("gymnasium:Pendulum-v1", "with Box and Box; choose"),
        ("gymnasium:Blackjack-v1", "with Tuple and Discrete; choose"),
        ("gymnasium:CartPol-v1", "such as CartPole-v1"),
        ("envpool:CartPol-v1", "such as CartPole-v1"),
        ("gymnax:CartPol-v1", "such as CartPole-v1"),
        ("minatar:brekout", "such as breakout"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_a_line(name, message):
    pytest.importorskip(name.partition(":")[0])
    with pytest.raises(BadInput, match=message) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_a_package_that_is_not_installed_is_refused_with_the_extra():
    with pytest.raises(BadInput, match=r"; pip install 'dml-methods\[rl\]'"):
        adapted.require("no_such_package_x")


def test_a_package_with_a_typing_error_is_refused_with_its_name():
    with pytest.raises(BadInput, match="pass gymnasium:CartPole-v1"):
        find("gymnasum:CartPole-v1")
