"""Ape-X on virtual ranks: a small network learns Catch."""

from functools import cache
from itertools import repeat

import jax
import numpy as np
import optax
import pytest

from dml import sim
from dml.data.replay.buffer import ReplayBuffer
from dml.environments.named import find
from dml.metrics.timer import Timer
from dml.models.policies.q_learning import q_problem
from dml.sim.events import Death
from dml.strategies import strategy
from dml.strategies.actors.apex.actor import Player, exploration, explore
from dml.strategies.actors.apex.replay import Replay
from dml.strategies.actors.apex.settings import ApexSettings, Roles
from dml.types import BadInput, RankFailed, Replayed
from dml.wire.comm import Delayed, Metered
from tests.strategies.actors import q_chain
from tests.wire.comm.replays import on, recorded, replayed

SMALL = {
    **{"batch": 16, "warmup": 100, "capacity": 2000, "ratio": 2.0, "window": 2},
    **{"target_every": 20, "report_every": 10, "n_step": 2},
}
OPTIMIZER = optax.adam(1e-3)


@cache
def problem():
    return q_problem(find("catch"), copies=4, length=8, widths=(16,), episodes=8)


def train(comm, updates=60, delays=None, **own):
    """Return the Steps of a rank, with params instead of calls."""
    if delays:
        comm = Delayed(comm, repeat(delays[comm.rank]))
    steps = strategy("apex", problem())(
        problem(),
        repeat(0, updates),
        OPTIMIZER,
        comm=Metered(comm),
        timer=Timer(comm.Wtime),
        **SMALL | own,
    )
    return [step._replace(params=step.params(), state=None) for step in steps]


def run(size=5, events=(), **own):
    """Return the Steps of all ranks."""
    return sim.run(lambda comm: train(comm, **own), size, events=events)


def bits(params):
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))


def test_the_learner_yields_steps_and_other_ranks_one_at_the_end():
    learner, *others = run(updates=65)
    assert [step.number for step in learner] == [10, 20, 30, 40, 50, 60, 65]
    assert [step.examples for step in learner] == [160] * 6 + [80]
    assert all(len(steps) == 1 and steps[0].params is None for steps in others)
    last = learner[-1].measures
    assert last["frames"] <= last["replay_size"] + 4 * 8 * 4
    assert 0 < last["lag_mean"] <= last["lag_max"] <= 65
    assert last["episodes"] > 5 and -1 <= last["mean_return"] <= 1
    assert all(steps[-1].words_sent > 0 for steps in (learner, *others))


def test_words_of_replay_and_learner_are_those_of_the_docstring():
    """A transition has observations of 2 x 50 words, and 6 or 7 others."""
    learner, replay, *actors = run(updates=100, pull_every=10**6)
    transition, batch = problem().play.dtype.itemsize // 4, SMALL["batch"]
    assert transition in (106, 107)
    words = [sum(step.words_sent for step in steps) for steps in (learner, replay)]
    params = sum(leaf.size for leaf in jax.tree.leaves(problem().params))
    assert words[0] == pytest.approx(100 * 3 * batch + 3 * (params + 2), rel=0.05)
    assert words[1] == pytest.approx(100 * batch * (transition + 3), rel=0.05)
    inserted = learner[-1].measures["replay_size"] * 10 / 9  # with places of resets
    total = sum(steps[0].words_sent for steps in actors)
    assert total == pytest.approx(inserted * (transition + 1), rel=0.3)


def test_the_loss_of_the_first_update_is_that_of_the_start_value():
    """With a loss of the params and the target network, both the start value."""
    learner, *_ = run(updates=1)
    assert bits(learner[0].params) != bits(problem().params)
    assert 0 < learner[0].loss < 1


@pytest.mark.parametrize("learner, actor", [(1.0, 1e-3), (1e-3, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("ratio", [0.5, 4.0])
def test_the_ratio_of_samples_does_not_depend_on_the_speed_of_ranks(
    monkeypatch, learner, actor, ratio
):
    seen, batch, message = [], SMALL["batch"], 4 * 8
    actors, window = 3, SMALL["window"]

    def observed(self):
        if self.buffer.inserted > self.warmup + batch / ratio and not self.ended:
            seen.append((self.buffer.inserted - self.warmup, self.sampled))
        return may_sample(self)

    may_sample = Replay.may_sample
    monkeypatch.setattr(Replay, "may_sample", observed)
    run(delays=[learner, 0.0, actor, actor, actor], ratio=ratio, updates=40)
    inserted, sampled = np.array(seen).T
    slack = batch / ratio + actors * message
    assert (sampled <= ratio * inserted).all()
    assert (inserted <= sampled / ratio + slack + actors * window * message).all()
    if actor < learner:  # credits wait
        assert (inserted > sampled / ratio + slack - message).any()
    if learner < actor:  # batches wait
        assert (sampled > ratio * inserted - batch - message * ratio).any()


def test_priorities_are_the_errors_of_the_actor_then_of_the_learner(monkeypatch):
    inserted, renewed = [], []
    insert, renew = ReplayBuffer.insert, ReplayBuffer.set_priorities

    def insertion(self, records, priorities):
        inserted.append((records, priorities))
        insert(self, records, priorities)

    def renewal(self, keys, priorities):
        renewed.append((self.records[keys % self.capacity], priorities))
        renew(self, keys, priorities)

    monkeypatch.setattr(ReplayBuffer, "insert", insertion)
    monkeypatch.setattr(ReplayBuffer, "set_priorities", renewal)
    run(updates=20)
    renewed = [pair for pair in renewed if len(pair[0])]
    assert len(inserted) > 9 and len(renewed) > 17
    start = problem().params
    for records, priorities in (inserted[0], renewed[0]):  # by the first params
        batch = Replayed(records, np.ones(len(records), np.float32), start)
        expected = problem().play.errors(start, batch)
        np.testing.assert_allclose(priorities, expected, rtol=1e-4, atol=1e-5)


def test_the_target_network_is_a_copy_of_the_params_for_20_updates():
    seen = []

    def gradient(params, batch):
        seen.append((bits(params), bits(batch.target)))
        return problem().gradient(params, batch)

    watched = problem()._replace(gradient=gradient)

    def program(comm):
        own = {"comm": Metered(comm), "timer": Timer(comm.Wtime), **SMALL}
        for _ in strategy("apex", watched)(watched, repeat(0, 50), OPTIMIZER, **own):
            pass

    sim.run(program, 4)
    params, targets = zip(*seen, strict=True)
    assert len(set(params)) == 50
    assert targets == tuple(params[k // 20 * 20] for k in range(50))


def test_random_numbers_of_all_batches_and_replays_differ(monkeypatch):
    drawn = []
    sample = ReplayBuffer.sample

    def sampled(self, uniforms):
        drawn.extend(uniforms.tolist())
        return sample(self, uniforms)

    monkeypatch.setattr(ReplayBuffer, "sample", sampled)
    run(replays=2, updates=20)
    assert len(drawn) == len(set(drawn)) >= 20 * SMALL["batch"]


def test_runs_are_repeatable_and_depend_on_the_seed():
    first, second, other = (bits(run(seed=seed)[0][-1].params) for seed in (1, 1, 2))
    assert first == second != other


def test_a_recorded_run_is_replayed_bit_for_bit_on_ranks_of_other_speed():
    delays = [0.5, 0.0, 1.0, 0.7, 1.9]
    result, codes = recorded(on(5, lambda comm: train(comm, delays=delays)), 5)
    again = replayed(on(5, train), codes)
    plain = on(5, train)(lambda comm: comm)
    assert bits(again[0][-1].params) == bits(result[0][-1].params)
    assert bits(plain[0][-1].params) != bits(result[0][-1].params)
    assert again[0][-1].measures == result[0][-1].measures


def test_actors_are_divided_among_replays():
    learner, *others = run(8, replays=2, updates=40)
    assert learner[-1].number == 40
    replays, actors = others[:2], others[2:]
    assert min(steps[0].words_sent for steps in replays) > 10_000
    assert len(actors) == 5 and all(steps[0].words_sent > 500 for steps in actors)
    roles = Roles(8, 2)
    assert [roles.actors_of(1), roles.actors_of(2)] == [[3, 5, 7], [4, 6]]


def test_training_goes_on_without_actors_that_have_died():
    delays = [0.1, 0.0, 1.0, 1.0, 1.0]
    events = (Death(4, 6.0), Death(2, 9.5))
    learner, *others = run(events=events, delays=delays, elastic=True, updates=80)
    assert learner[-1].number == 80 and others[3] is None and others[1] is None


def test_training_ends_when_all_actors_or_the_replay_have_died():
    delays = [0.1, 0.0, 1.0, 1.0]
    everyone = (Death(2, 6.0), Death(3, 7.0))
    for events in (everyone, (Death(1, 6.0),)):
        with pytest.raises(RankFailed):
            run(4, events=events, delays=delays, elastic=True, updates=500)


def test_a_recorded_run_with_a_death_is_replayed():
    delays = [0.1, 0.0, 1.0, 1.0, 1.0]

    def started(death):
        def program(wrap):
            return sim.run(
                lambda comm: train(wrap(comm), delays=delays, elastic=True, updates=80),
                5,
                events=(Death(4, death),),
            )

        return program

    result, codes = recorded(started(6.0), 5)
    again = replayed(started(1e6), codes)  # rank 4 waits in vain until it dies
    assert result[4] is None and bits(again[0][-1].params) == bits(result[0][-1].params)
    other = started(1e6)(lambda comm: comm)
    assert bits(other[0][-1].params) != bits(result[0][-1].params)


def test_all_ranks_end_when_the_caller_needs_no_further_steps():
    def program(comm):
        own = {"comm": Metered(comm), "timer": Timer(comm.Wtime), **SMALL}
        steps = strategy("apex", problem())(problem(), repeat(0), OPTIMIZER, **own)
        first = next(steps)
        steps.close()
        return first.number

    assert sim.run(program, 5) == [10, 0, 0, 0, 0]


def test_the_greedy_policy_of_a_chain_is_optimal():
    chain = q_chain.problem()

    def program(comm):
        comm = Metered(Delayed(comm, repeat(1e-3 * comm.rank)))
        own = {"batch": 16, "warmup": 50, "ratio": 4.0, "target_every": 10}
        *_, step = strategy("apex", chain)(
            chain, repeat(0, 300), q_chain.UPDATE, comm=comm, timer=Timer(), **own
        )
        return step.params()

    values = sim.run(program, 4)[0]
    assert values[:-1].argmax(1).tolist() == [1, 1, 1, 1]  # to the right
    assert values.max() > 0.9  # close to the reward at the end


def test_transitions_may_have_more_steps_than_a_message():
    assert run(4, updates=2, n_step=9)[0][-1].number == 2


def test_a_run_resumes_from_the_state_of_its_update():
    def program(comm, state):
        own = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "state": state}
        steps = strategy("apex", problem())(
            problem(), repeat(0, 10), OPTIMIZER, **own | SMALL
        )
        return [step.state() for step in steps][-1]

    state = sim.run(lambda comm: program(comm, None), 4)[0]
    assert state[0].count == 10
    assert sim.run(lambda comm: program(comm, state), 4)[0][0].count == 20


def test_epsilons_of_actors_are_those_of_the_paper():
    found = [exploration(i, 8, 0.4, 7.0) for i in range(8)]
    np.testing.assert_allclose(found, 0.4 ** np.arange(1, 9))
    assert [exploration(i, 3, 0.1, 0.0) for i in range(3)] == [0.1] * 3
    assert exploration(0, 1, 0.4, 7.0) == 0.4**4.5


def test_a_share_epsilon_of_actions_is_random_and_each_equally_often():
    draws = (np.arange(3000) / 3000).astype(np.float32)
    values, greedy = np.zeros((3000, 3)), np.full(3000, 2)
    actions = explore(values, greedy, draws, 0.3)
    assert np.bincount(actions[:900]).tolist() == [300, 300, 300]
    assert (actions[900:] == 2).all()
    assert (explore(values, greedy, draws, 0.0) == 2).all()
    assert np.bincount(explore(values, greedy, draws, 1.0)).tolist() == [1000] * 3


def test_an_actor_sends_each_step_of_its_episodes_once():
    """Transitions of two messages continue each other, and have no resets."""
    settings = ApexSettings(**SMALL)
    play, params = problem().play, jax.device_get(problem().params)
    player = Player(play, 3, 0.5, settings)
    records = np.concatenate([player.transitions(params, k) for k in range(9)])
    frames = 9 * 8 * 4
    assert frames * 0.8 < player.frames < frames
    # transitions of the last n steps are in the next message
    assert player.frames - 4 * settings.n_step <= len(records) <= player.frames
    board = records["observations"].reshape(-1, 2, 10, 5)[:, :, :9]
    row = board.any(3).argmax(2)
    inside = board[:, 1].any((1, 2))
    assert (row[inside, 1] == row[inside, 0] + 2).all()
    assert (records["discount"][inside] == np.float32(0.99**2)).all()
    assert set(records["version"]) == set(range(9))
    assert player.episodes > 20 and len(player.last_returns) == 20


@pytest.mark.parametrize(
    "size, own, message",
    [
        (2, {}, "expected a learner, 1 replay or more and an actor for each"),
        (4, {"replays": 2}, "expected a learner, 1 replay or more and an actor"),
        (4, {"capacity": 110}, "expected a capacity of warmup and batch"),
    ],
)
def test_settings_out_of_range_are_refused(size, own, message):
    with pytest.raises(BadInput, match=message):
        run(size, **own)
