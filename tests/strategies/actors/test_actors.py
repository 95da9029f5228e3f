"""IMPALA and SEED: a serial loop, replays, words, lag under delays, deaths."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.policies.actor import Actor
from dml.sim.delays import delay_distribution, step_seconds
from dml.sim.events import Death
from dml.strategies.actors.assembly import report_dtype
from dml.strategies.actors.episodes import Episodes
from dml.strategies.actors.impala import HEADER, impala
from dml.strategies.actors.roles import roles
from dml.strategies.actors.rollout_queue import Queue
from dml.strategies.actors.seed import seed
from dml.types import BadInput
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import Delayed, Metered
from dml.wire.plans.admission import Admission
from dml.wire.reducers.fixed_point import order_free
from tests.strategies.actors.tabular import UPDATE, problem
from tests.wire.comm.replays import recorded, replayed

UPDATES, SEED = 12, 5
BOTH = pytest.mark.parametrize("strategy", (impala, seed))


def train(strategy, comm, delays="", updates=UPDATES, stop=None, **own):
    """Return the Steps of this rank, and the params after each."""
    comm = Metered(comm)
    if delays:
        draws = step_seconds(delay_distribution(delays), 3, comm.rank)
        comm = Delayed(comm, draws)
    own = {"comm": comm, "timer": Timer(comm.Wtime), "seed": SEED, **own}
    steps, params = [], []
    running = strategy(problem(), range(updates), UPDATE, **own)
    for step in running:
        steps.append(step)
        values = step.params()
        params.append(None if values is None else values.copy())
        if step.number == stop and values is not None:
            running.close()
    return steps, params


def run(strategy, size, events=(), **own):
    return sim.run(lambda comm: train(strategy, comm, **own), size, events=events)


def serial(actors, updates=UPDATES):
    """Return the params after each update of a loop on one process."""
    made = problem()
    table = UPDATE(made.params)
    players = [Actor(made.play, SEED, number) for number in range(actors)]
    rollouts = np.zeros(actors, made.play.dtype)
    for version in range(updates):
        for player, rollout in zip(players, rollouts, strict=True):
            player.rollout(table.values, version, rollout)
        table.update(*made.gradient(table.values, rollouts)[1])
        yield table.values.copy()


@BOTH
@pytest.mark.parametrize("delays", ("", "shifted_exponential:0.1,1"))
def test_without_lag_it_has_the_bits_of_a_serial_loop(strategy, delays):
    (steps, params), *actors = run(strategy, 5, delays=delays, lag=0)
    assert np.array_equal(params, [*serial(4)])
    assert [step.number for step in steps] == [*range(1, UPDATES + 1)]
    assert all(step.measures["lag_max"] == 0 for step in steps)
    assert [one[0][0].number for one in actors] == [UPDATES] * 4


@BOTH
def test_two_learners_have_the_bits_of_one_with_an_order_free_sum(strategy):
    own = {"lag": 0, "shards": 4, "reducer": order_free(tree_allreduce)}
    (first, one), *_ = run(strategy, 5, **own)
    (again, two), (_, other), *_ = run(strategy, 6, learners=2, **own)
    assert np.array_equal(one, two) and np.array_equal(two, other)
    for name in ("frames", "mean_return", "lag_mean"):
        values = [[step.measures[name] for step in steps] for steps in (first, again)]
        assert values[0] == pytest.approx(values[1])


@BOTH
@pytest.mark.parametrize(("batch", "lag"), ((2, 1), (4, 2), (7, 1)))
@pytest.mark.parametrize("delays", ("pareto:0.1,1.2", "constant:1*1,0.5,0.25"))
def test_random_delays_never_violate_the_lag_bound(strategy, batch, lag, delays):
    (steps, _), *_ = run(strategy, 6, delays=delays, batch=batch, lag=lag)
    assert len(steps) == UPDATES
    lags = [step.measures["lag_max"] for step in steps]
    assert max(lags) <= lag and (strategy is seed or max(lags) > 0)


def test_the_largest_lag_of_two_learners_is_a_maximum():
    (steps, _), *_ = run(impala, 6, learners=2, batch=2, lag=1)
    assert max(step.measures["lag_max"] for step in steps) == 1


@BOTH
def test_lag_learning_is_not_hidden_by_the_serial_order(strategy):
    (_, params), *_ = run(strategy, 5, lag=1)
    assert not np.array_equal(params, [*serial(4)])


@BOTH
def test_words_are_those_of_the_formula(strategy):
    play, words = problem().play, []

    def program(comm):
        comm = Metered(comm)
        steps, _ = train(strategy, comm)
        words.append(comm.bytes_sent / 4)
        return steps[-1].measures.get("steps"), steps[-1].words_sent

    _, *actors = sim.run(program, 4)
    steps, up = (sum(column) for column in zip(*actors, strict=True))
    down = sum(words) - up
    if strategy is impala:
        rollouts = steps / play.length
        assert up == rollouts * play.dtype.itemsize / 4
        assert down == rollouts * (HEADER + problem().params.size) + 3 * HEADER
    else:  # each actor sends its first observations before its first step
        assert up == (steps + 3) * report_dtype(play).itemsize / 4
        assert down == (steps + 3) * play.copies


@BOTH
def test_a_recorded_run_replays_with_the_same_bits_at_other_speeds(strategy):
    def recorded_run(delays, wrap):
        return sim.run(
            lambda comm: train(strategy, wrap(comm), delays, batch=3, lag=2), 6
        )

    delays = "shifted_exponential:0.2,1"
    results, codes = recorded(partial(recorded_run, delays), 6)
    again = replayed(partial(recorded_run, ""), codes)
    other = run(strategy, 6, batch=3, lag=2)
    assert np.array_equal(results[0][1], again[0][1])
    assert not np.array_equal(results[0][1], other[0][1])


@BOTH
def test_training_goes_on_without_actors_that_die(strategy):
    own = {"delays": "constant:1", "batch": 3, "elastic": True, "updates": 30}
    (steps, params), *_ = run(strategy, 5, **own)
    for deaths in ((2, 4.5),), ((1, 2.0), (3, 7.25), (4, 9.5)):
        events = [Death(*death) for death in deaths]
        (lonely, other), *actors = run(strategy, 5, events=events, **own)
        assert len(lonely) == 30 and np.isfinite(other[-1]).all()
        assert sum(one is None for one in actors) == len(deaths)
        assert max(step.measures["lag_max"] for step in lonely) <= 1
        assert not np.array_equal(other, params)


@BOTH
def test_a_death_ends_the_wait_for_the_only_rollout_in_play(strategy):
    own = {"delays": "constant:1*1,1,0.5", "batch": 2, "lag": 0, "elastic": True}
    (steps, _), _, last = run(strategy, 3, events=[Death(2, 1.5)], updates=5, **own)
    assert len(steps) == 5 and last is None


def test_an_actor_that_dies_while_it_waits_gets_no_grant():
    queue = Queue(problem().play, Admission(batch=1, lag=0))
    for actor in (1, 2, 3):
        queue.request(actor)
    assert queue.grants() == [1]
    queue.forget(2)
    queue.forget(1)
    assert queue.grants() == [3]


@BOTH
def test_a_learner_without_living_actors_ends_in_one_line(strategy):
    events = [Death(1, 3.5), Death(2, 5.5)]
    with pytest.raises(BadInput, match="expected a living actor of learner 0"):
        run(strategy, 3, delays="constant:1", elastic=True, updates=99, events=events)


@BOTH
def test_a_loop_that_stops_early_ends_the_actors(strategy):
    (steps, _), *actors = run(strategy, 4, stop=3)
    assert [step.number for step in steps] == [1, 2, 3]
    assert [len(actor_steps) for actor_steps, _ in actors] == [1, 1, 1]


@BOTH
def test_inference_in_parts_and_later_versions_change_no_bits_without_lag(strategy):
    own = {"inference": 1} if strategy is seed else {}
    (steps, params), *_ = run(strategy, 4, lag=0, version=7, **own)
    assert steps[0].number == 8
    assert np.array_equal(params, [*serial(3)])


def test_returns_of_episodes_continue_across_rollouts():
    made, draws = problem(copies=2, length=5), np.random.default_rng(0)
    episodes, found, expected = Episodes(), [], []
    sums = np.zeros((3, 2))  # of three actors
    for _ in range(40):
        actor, rollout = draws.integers(3), np.zeros((), made.play.dtype)[()]
        rollout["actor"] = actor
        rollout["rewards"] = draws.integers(-3, 9, (5, 2))
        rollout["terminated"] = draws.random((5, 2)) < 0.15
        rollout["truncated"] = draws.random((5, 2)) < 0.1
        found += episodes.returns(rollout)
        for t, n in np.ndindex(5, 2):
            sums[actor, n] += rollout["rewards"][t, n]
            if rollout["terminated"][t, n] or rollout["truncated"][t, n]:
                expected.append(sums[actor, n])
                sums[actor, n] = 0
    assert found == expected and len(found) > 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ((1,), "expected 2 ranks or more"),
        ((4, 3), "expected 1 to 2 learners of 4 ranks"),
        ((6, 2, 5), "pass a multiple of 2 as --batch"),
        ((8, 1, 4, 0), "expected a lag bound of 1 or more with 7 actors"),
    ),
)
def test_roles_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        roles(*arguments)


@pytest.mark.parametrize(("size", "learners"), ((2, 1), (7, 2), (9, 4)))
def test_every_actor_has_one_learner(size, learners):
    plan = roles(size, learners)
    of = [rank for learner in range(learners) for rank in plan.actors_of(learner)]
    assert sorted(of) == [*range(learners, size)]
    for learner in range(learners):
        actors = plan.actors_of(learner)
        assert actors and all(plan.learner(rank) == learner for rank in actors)
