"""Rollouts of actors."""

import jax
import numpy as np
import pytest

from dml.environments.cartpole import CARTPOLE
from dml.environments.catch import CATCH
from dml.models.policies.actor import Actor, evaluation
from dml.models.policies.rollouts import rollout_problem
from dml.types import BadInput, Environment, Outcome

COPIES, LENGTH, ROLLOUTS = 4, 16, 5


def played(environment=CATCH, copies=COPIES, length=LENGTH, seed=0, actor=1):
    problem = rollout_problem(environment, copies=copies, length=length, widths=(8,))
    rollouts = np.zeros(ROLLOUTS, problem.play.dtype)
    made = Actor(problem.play, seed, actor)
    for number, rollout in enumerate(rollouts):
        made.rollout(problem.params, 10 + number, rollout)
    return rollouts, made


def test_a_rollout_goes_on_where_the_last_one_stopped():
    rollouts, _ = played()
    assert rollouts["actor"].tolist() == [1] * ROLLOUTS
    assert rollouts["number"].tolist() == list(range(ROLLOUTS))
    assert (rollouts["versions"] == 10 + np.arange(ROLLOUTS)[:, None]).all()
    observations = rollouts["observations"]
    assert np.array_equal(observations[1:, 0], observations[:-1, -1])


@pytest.mark.parametrize("environment", [CARTPOLE, CATCH])
def test_the_step_after_an_end_is_a_reset(environment):
    rollouts, _ = played(environment)
    ended = (rollouts["terminated"] | rollouts["truncated"]).reshape(-1, COPIES)
    resets = rollouts["resets"].reshape(-1, COPIES)
    assert ended.any() and not resets[0].any()
    assert np.array_equal(resets[1:], ended[:-1])
    assert not rollouts["rewards"][rollouts["resets"]].any()


def test_fragments_of_every_length_have_equal_steps():
    short, long = played(length=8)[0], played(length=40)[0]
    for name in ("actions", "logits", "rewards", "terminated", "resets"):
        steps = short[name].reshape(-1, *short[name].shape[2:])
        assert steps.tobytes() == long[name][0].tobytes()


def test_a_copy_does_not_depend_on_the_number_of_copies():
    few, many = played(copies=2)[0], played(copies=9)[0]
    for name in ("observations", "actions", "logits"):
        assert np.array_equal(few[name], many[name][:, :, :2])


def test_actors_and_seeds_differ():
    first = played()[0]["observations"]
    assert np.array_equal(first, played()[0]["observations"])
    assert not np.array_equal(first, played(actor=2)[0]["observations"])
    assert not np.array_equal(first, played(seed=1)[0]["observations"])


def test_returns_are_the_sums_of_rewards_of_episodes():
    rollouts, actor = played()
    rewards = rollouts["rewards"].reshape(-1, COPIES)
    ended = rollouts["terminated"].reshape(-1, COPIES)
    assert len(actor.returns) == ended.sum()
    assert sum(actor.returns) == rewards.sum()  # a reward of Catch ends its episode
    assert actor.steps == ROLLOUTS * LENGTH


def test_params_of_jax_and_of_numpy_give_equal_rollouts():
    problem = rollout_problem(CATCH, copies=2, length=4, widths=(8,))
    rollouts = np.zeros(2, problem.play.dtype)
    trees = problem.params, jax.device_get(problem.params)
    for params, rollout in zip(trees, rollouts, strict=True):
        Actor(problem.play, 0, 1).rollout(params, 0, rollout)
    assert rollouts[0].tobytes() == rollouts[1].tobytes()


def test_observations_of_another_shape_and_huge_rollouts_are_bad_input():
    wrong = CATCH._replace(shape=(3, 50))
    with pytest.raises(BadInput, match=r"observations of \(4, 3, 50\) from reset"):
        played(wrong)
    with pytest.raises(BadInput, match="rollouts below 2 GiB, got copies=1000000"):
        rollout_problem(CATCH, copies=10**6, length=10**6)


class Endless:
    """Copies with rewards of 1, whose episodes end by a limit of 3 steps."""

    def __init__(self, seeds):
        self.size, self.count = len(seeds), 0

    def reset(self):
        return np.zeros((self.size, 1), np.float32)

    def step(self, actions):
        self.count += 1
        assert self.count <= 3
        no = np.zeros(self.size, np.bool_)
        ends = no | (self.count == 3)
        return Outcome(self.reset(), np.ones(self.size, np.float32), no, ends)


def test_an_evaluation_ends_with_truncated_episodes():
    environment = Environment("endless", (1,), 2, 3, 3.0, Endless)
    stay = np.zeros(4, np.int32), np.zeros((4, 2), np.float32)
    evaluate = evaluation(environment, lambda *_: stay, 0, 4)
    assert evaluate({}) == {"mean_return": 3.0}
