"""A3C: episodes as examples, on one rank and on parameter servers."""

from functools import cache

import jax
import numpy as np
import pytest

from dml import sim
from dml.environments.cartpole import CARTPOLE
from dml.environments.catch import CATCH
from dml.metrics.timer import Timer
from dml.models.policies import episodes
from dml.models.policies.episodes import episode_problem, padded, play
from dml.strategies.serial import serial
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.update.dense import make
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import DELAYS, delayed
from tests.strategies.small import alone as one_rank

UPDATES, BATCH = 5, 4


@cache
def problem():
    return episode_problem(CATCH, examples=64, widths=(8,), episodes=3)


@cache
def optimizer():
    return make("adam", 0.01)


def minibatches(workers=1):
    """Return minibatches of BATCH episodes for each worker."""
    batch = BATCH * workers
    return [np.arange(batch) + batch * number for number in range(UPDATES)]


def serial_bits():
    """Return the params of one rank, and the loss of each update."""
    how = {"comm": one_rank(), "timer": Timer()}
    steps = [*serial(problem(), minibatches(), optimizer(), **how)]
    leaves = jax.tree.leaves(steps[-1].params())
    return b"".join(np.asarray(leaf).tobytes() for leaf in leaves), [
        step.loss for step in steps
    ]


def served(name, size, delays=DELAYS):
    """Return the first rank's table and losses of virtual ranks."""

    def program(comm):
        comm = delayed(comm, delays)
        who = roles(comm.size, 1, False)
        rule = consistency(name, Choice(backup=0, staleness=1), who.workers)
        how = {"comm": comm, "timer": Timer(comm.Wtime), "setup": Setup(who, rule)}
        indices = minibatches(who.workers)
        steps = [*server(problem(), indices, optimizer(), **how)]
        return steps[-1].params(), [step.loss for step in steps]

    return sim.run(program, size)[0]


@pytest.mark.parametrize("name", ["async", "bsp", "ssp", "softsync"])
def test_a3c_with_one_worker_is_a_serial_actor_critic(name):
    table, losses = served(name, 2)
    bits, serial_losses = serial_bits()
    assert table.tobytes() == bits
    assert losses == serial_losses


@pytest.mark.parametrize("name", ["async", "softsync"])
def test_params_of_several_workers_are_stale(name):
    table, _ = served(name, 3)
    assert np.isfinite(table).all()
    assert table.tobytes() != serial_bits()[0]


def test_an_episode_depends_on_its_number_and_the_params_alone():
    params = problem().params
    together = play(CATCH, params, 3, np.array([7, 2, 9]))
    alone = play(CATCH, params, 3, np.array([2]))
    for name, field in alone.items():
        length = field.shape[1]
        assert np.array_equal(together[name][:, :length, 1:2], field), name
    other = play(CATCH, params, 3, np.array([3]))
    assert not np.array_equal(other["actions"], alone["actions"])


def test_steps_after_the_end_of_an_episode_change_nothing():
    numbers = np.array([5, 1, 4, 8])
    params = episode_problem(CARTPOLE, widths=()).params
    steps = play(CARTPOLE, params, 0, numbers)
    lengths = (~steps["resets"]).sum(1)[0]
    assert steps["rewards"].shape == (1, padded(lengths.max(), CARTPOLE.limit), 4)
    assert 8 < lengths.min() < lengths.max()
    assert (steps["terminated"] & ~steps["resets"]).sum() == len(numbers)
    gradient = episode_problem(CARTPOLE, widths=()).gradient
    loss, grads = gradient(params, numbers)

    def disturbed(*arguments):
        steps = play(*arguments)
        for name in ("observations", "logits", "rewards"):
            for n, length in enumerate(lengths):
                steps[name][:, length + (name == "observations") :, n] = 9
        return steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episodes, "play", disturbed)
        other_loss, others = gradient(params, numbers)
    assert float(loss) == float(other_loss)
    for leaf, other in zip(*map(jax.tree.leaves, (grads, others)), strict=True):
        assert np.asarray(leaf).tobytes() == np.asarray(other).tobytes()


def test_lengths_of_padded_episodes_are_few():
    lengths = {padded(length, 10_000) for length in range(1, 10_001)}
    assert lengths == {64, 512, 4096, 10_000}
    assert padded(9, 9) == 9
