"""The single file of IMPALA has bits and messages of the strategy, and its V-trace."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dml.metrics.timer import Timer
from dml.models.policies.actor_critic import Loss
from dml.models.policies.actor_critic import gradient as modular_gradient
from dml.models.policies.vtrace import vtrace as modular_vtrace
from dml.strategies.actors.impala import impala as strategy
from dml.types import Environment, Outcome, Play, Problem, rollout_dtype
from experiments.single import impala
from tests.experiments.single.proof import broken, ran

UPDATES, RATE = 20, 4.0
START = np.zeros((impala.STATES, 3), np.float32)


class Corridor:
    """One copy of the corridor, whose only episode never ends."""

    size = 1

    def __init__(self, seeds):
        self.state = 0

    def outcome(self, reward):
        never = np.zeros(1, bool)
        observation = np.array([[self.state]], np.float32)
        return Outcome(observation, np.array([reward], np.float32), never, never)

    def reset(self):
        return self.outcome(0).observations

    def step(self, actions):
        self.state, reward = impala.step(self.state, int(actions[0]))
        return self.outcome(reward)


CORRIDOR = Environment("corridor", (1,), 2, 1 << 30, 0.25, Corridor)
DTYPE = rollout_dtype(CORRIDOR, 1, impala.T)


def numbers(seed, actor, step, size):
    """Return the random number of an actor's step in the file."""
    rng = np.random.default_rng([seed, actor + 1])
    return rng.random(step + 1)[-size:]


def to_right(logits):
    return 1 / (1 + np.exp(logits[0] - logits[1]))


def act(params, observations, number):
    logits = params["x"][int(observations[0, 0]), :2]
    return (number < to_right(logits)).astype(np.int32), logits[None]


def as_single(records):
    """Return the rollouts of the strategy as those of the file."""
    rollouts = np.zeros(len(records), impala.ROLLOUT)
    states = records["observations"][..., 0, 0].astype(int)
    for rollout, record, own in zip(rollouts, records, states, strict=True):
        rollout["version"], rollout["last"] = record["versions"][0], own[-1]
        for t in range(impala.T):
            action = record["actions"][t, 0]
            pi = to_right(record["logits"][t, 0])
            mu = pi if action else 1 - pi
            rollout["steps"][t] = own[t], action, record["rewards"][t, 0], mu
    return rollouts


def problem():
    def gradient(params, records):
        table = np.asarray(params["x"])
        return 0.0, {"x": impala.gradient(table, as_single(records))}

    play = Play(CORRIDOR, 1, impala.T, DTYPE, act, numbers)
    return Problem({"x": START}, 0, gradient, lambda params: {}, play=play)


def by_strategy(size, lag):
    """Return the params after the last update, and the bytes that each rank sent."""

    def program(comm):
        steps = strategy(
            problem(),
            range(UPDATES),
            optax.sgd(RATE),
            comm=comm,
            timer=Timer(comm.Wtime),
            lag=lag,
        )
        *_, last = steps
        return comm.rank or np.array(last.params()["x"]).tobytes()

    return ran(program, size)


def single(size, at_once, module=impala):
    """Return the same of the file, and the lag of each update."""

    def program(comm):
        if comm.rank:
            module.act(comm)
            return comm.rank
        table, consumed = module.learn(comm, UPDATES, RATE, at_once)
        lags.extend(v - each["version"].mean() for v, each in enumerate(consumed))
        return table.tobytes()

    lags = []
    return ran(program, size), lags


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize("lag", (0, 1))
def test_params_and_messages_are_those_of_the_strategy(size, lag):
    (found, lags), expected = single(size, bool(lag)), by_strategy(size, lag)
    assert found[0] == expected[0]  # params, and words down
    assert lags == [0] + [lag] * (UPDATES - 1)
    for (_, nbytes), (_, counted) in zip(found[1:], expected[1:], strict=True):
        rollouts = UPDATES + 1  # the last is not used
        assert nbytes == rollouts * impala.ROLLOUT.itemsize
        assert counted == rollouts * DTYPE.itemsize  # which has more fields


def rollouts(count, lag):
    """Return rollouts of a policy, and its params or those of another policy."""
    rng = np.random.default_rng(count)
    tables = 0.5 * rng.standard_normal((2, impala.STATES, 3), np.float32)
    played = [impala.play(tables[0], 0, 0, rng) for _ in range(count)]
    return np.concatenate(played), tables[lag]


@pytest.mark.parametrize("lag", (0, 1))
def test_the_gradient_is_that_of_the_actor_critic(lag):
    batch, table = rollouts(8, lag)
    steps = batch["steps"]
    states = np.concatenate([steps["state"], batch["last"][:, None]], axis=1)
    log_mu = np.log(steps["mu"])
    other = np.log1p(-np.exp(log_mu))
    pairs = np.stack([log_mu, other], axis=-1)
    logits = np.where(steps["action"][..., None] == 0, pairs, pairs[..., ::-1])
    fields = {
        "observations": states[:, :, None],
        "logits": logits[:, :, None].astype(np.float32),
        "rewards": steps["reward"][..., None],
        "actions": steps["action"][..., None],
        "terminated": np.zeros((*steps.shape, 1), bool),
        "resets": np.zeros((*steps.shape, 1), bool),
        "scale": np.float32(steps.size),
    }
    loss = Loss(discount=impala.GAMMA, value_weight=1.0, entropy_weight=0.0)

    def apply(params, observations):
        rows = params[observations]
        return rows[:, :2], rows[:, 2]

    _, expected = modular_gradient(apply, loss, jnp.asarray(table), fields)
    found = impala.gradient(table, batch)
    pi = np.exp(table[steps["state"], :2])
    pi = np.take_along_axis(pi, steps["action"][..., None], -1)[..., 0] / pi.sum(-1)
    assert not lag or (pi < steps["mu"]).any() and (pi > steps["mu"]).any()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_targets_are_those_of_vtrace():
    rng = np.random.default_rng(0)
    rewards, weights = rng.random((2, 4, impala.T))
    values = rng.standard_normal((4, impala.T + 1))
    with jax.enable_x64(True):
        discounts = np.full((impala.T, 4), impala.GAMMA)
        arrays = rewards.T, discounts, values.T, weights.T, weights.T
        expected, _ = modular_vtrace(*arrays)
        expected = np.asarray(expected).T
    found = impala.vtrace(rewards, values, weights)
    np.testing.assert_allclose(found[:, :-1], expected, rtol=1e-12)


@pytest.mark.parametrize("size", (2, 3, 4))
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = ran(impala.main, size)
    text = capsys.readouterr().out
    words = [int(part.split()[-1]) for part in text.split(" words sent")[:-1]]
    assert len(words) == 2 and 4 * sum(words) == counted[0][1]
    assert "equal bits to one process: True\n" in text


@pytest.mark.parametrize(
    "old, new",
    [
        ("* (pi - chosen)", "* (chosen - pi)"),
        ('steps["mu"])  # ρ', '(2 * steps["mu"]))  # ρ'),
        ("targets[..., t + 1] - values", "values[..., t + 1] - values"),
        ("GAMMA * targets[:, 1:]", "GAMMA * values[:, 1:]"),
        ('state = rollout["last"][0]', "state = 0"),
        ("queue.sort(", "queue.reverse()  # ("),
    ],
)
def test_a_broken_line_changes_the_params(old, new, tmp_path):
    mutant = broken(tmp_path, impala, (old, new))
    found, _ = single(4, True, mutant)
    assert found[0] != by_strategy(4, 1)[0]


def test_one_rank_is_refused():
    with pytest.raises(SystemExit, match="expected 2 ranks, a learner and actors"):
        ran(impala.main, 1)
