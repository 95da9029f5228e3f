"""Asynchronous strategies: replays, equivalences, conserved sums, virtual seconds."""

from itertools import repeat

import jax
import numpy as np
import optax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.strategies.decentral.outer import delayed_nesterov, nesterov, outer_state
from dml.strategies.decentral.outer_server import Outer
from dml.types import BadInput
from dml.update.dense import apply
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Delayed, Metered
from dml.wire.comm.tags import Tag
from dml.wire.comm.wrapper import Wrapper
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.sides import sides
from dml.wire.reducers.exact import exact
from tests.strategies.decentral.test_decentral import (
    DIM,
    MINIMUM,
    RATE,
    SCALES,
    SIZE,
    TARGETS,
    quadratics,
)
from tests.wire.comm.replays import recorded, replayed

UNEVEN = (1.0, 3.7, 0.45, 1.3, 2.9)  # seconds per update by rank
EVEN = (1.0,) * SIZE


class Logged(Wrapper):
    """Appends (rank, receiver) to `events` for every request and reply of a pair."""

    def __init__(self, comm, events):
        super().__init__(comm)
        self.events = events

    def Isend(self, buf, dest, tag=0):
        if tag == Tag.PAIR:
            self.events.append((self.rank, dest))
        return self.comm.Isend(buf, dest, tag)


class Run:
    """The Steps of all ranks, their packed parameters, and virtual seconds.

    vectors: rank x step x dimension. own: (seconds, vector) of each `observe` by rank.
    """

    def __init__(self, name, speeds=EVEN, steps=12, size=SIZE, order=0, **own):
        self.events, self.own = [], [[] for _ in range(size)]
        self.steps, self.vectors = [], []
        own = {"update": optax.sgd(RATE), "lengths": [steps] * size} | own
        self.update, self.lengths = own.pop("update"), own.pop("lengths")
        self.batch = own.pop("batch", np.arange(SIZE))
        if name in ("diloco", "synchronous"):
            own["reducer"] = exact(ALLREDUCE["star"])
        results = sim.run(
            lambda comm: self.train(comm, name, speeds, own), size, seed=order
        )
        self.steps, self.memories, self.seconds = zip(*results, strict=True)
        if name != "synchronous":
            self.vectors = [[each[1] for each in rank] for rank in self.memories]
            self.last = np.array([rank[-1] for rank in self.vectors])

    def train(self, comm, name, speeds, own):
        problem, rank = quadratics(), comm.rank
        made = Metered(Delayed(Logged(comm, self.events), repeat(speeds[rank])))
        if name not in ("diloco", "synchronous"):
            own = {"observe": lambda vector: self.observe(comm, vector)} | own
        batches = repeat(self.batch, self.lengths[rank])
        steps, memories = [], []
        for step in strategy(name, problem)(
            *(problem, batches, self.update), comm=made, timer=Timer(comm.Wtime), **own
        ):
            steps.append(step._replace(params=step.params(), state=step.state()))
            leaves = jax.tree.leaves(step.memory() or ())
            memories.append([np.copy(leaf) for leaf in leaves])
        return steps, memories, comm.Wtime()

    def observe(self, comm, vector):
        self.own[comm.rank].append((comm.Wtime(), vector.copy()))
        self.events.append((comm.rank, None))


def dense(events, steps):
    """Replay the events of AD-PSGD with all replicas in one process."""
    x, request = [np.zeros(DIM, np.float32) for _ in range(SIZE)], {}
    change, done, fresh = {}, [0] * SIZE, [True] * SIZE
    edges = sides(topology("complete", SIZE))
    optimizer, problem = optax.sgd(RATE), quadratics()
    state = optimizer.init(problem.params)
    for rank, other in events:
        if fresh[rank] and done[rank] < steps:  # the update precedes the exchange
            params = {"x": x[rank]}
            _, grads = problem.gradient(params, np.array([rank]))
            x[rank] = np.array(apply(optimizer, grads, state, params)[0]["x"])
            fresh[rank] = False
        if other is None:
            done[rank], fresh[rank] = done[rank] + 1, True
        elif edges[rank].active:
            x[rank] = x[rank] - change.pop(rank, np.float32(0))
            request[rank] = x[rank]
        else:
            change[other] = (request[other] - x[rank]) / np.float32(2)
            x[rank] = x[rank] + change[other]
    return np.array([x[rank] - change.get(rank, 0) for rank in range(SIZE)])


@pytest.mark.parametrize("speeds", [EVEN, UNEVEN])
def test_replicas_of_pairs_are_those_of_a_dense_replay_of_their_averages(speeds):
    run = Run("ad_psgd", speeds, steps=20)
    averages = sum(other is not None for _, other in run.events) // 2
    assert averages > 20 and np.ptp(run.last, axis=0).max() > 0.01
    assert np.array_equal(run.last, dense(run.events, 20))


def test_two_ranks_of_equal_speed_average_after_every_update():
    """The reply to a request is known one update later, and the last at the barrier."""
    x, change, replicas = np.zeros((2, DIM)), np.zeros(DIM), []
    for _ in range(9):
        x = x - RATE * SCALES[:2, None] * (x - TARGETS[:2])
        x[1] -= change
        change = (x[1] - x[0]) / 2
        x[0] += change
        replicas.append(x.copy())
    x[1] -= change
    # rank 1 is slightly ahead, so that rank 0 finds its requests
    run = Run("ad_psgd", (1.0, 0.999), size=2, batch=np.arange(2), steps=9)
    observed = np.array([[vector for _, vector in rank] for rank in run.own])
    np.testing.assert_allclose(observed, np.swapaxes(replicas, 0, 1), atol=1e-5)
    np.testing.assert_allclose(run.last, x, atol=1e-5)
    assert run.steps[0][0].measures["staleness"] == 8 / 9


def test_a_slow_rank_delays_synchronous_training_and_not_its_neighbours():
    slow = (1.0, 1.0, 1.0, 1.0, 10.0)
    run = Run("ad_psgd", slow)
    for rank in range(SIZE - 1):
        assert run.own[rank][-1][0] == pytest.approx(12, rel=0.01)
    shares = [20, 20, 20, 20, 2]  # 82 updates, as many as 16.4 synchronous ones
    assert max(Run("ad_psgd", slow, lengths=shares).seconds) == pytest.approx(
        20, rel=0.01
    )
    assert max(Run("synchronous", slow, steps=16).seconds) == pytest.approx(
        160, rel=0.01
    )


@pytest.mark.parametrize("name", ["ad_psgd", "async_diloco"])
def test_runs_do_not_depend_on_the_order_in_which_ranks_start(name):
    runs = [Run(name, UNEVEN, order=order) for order in (0, 3)]
    assert np.array_equal(runs[0].last, runs[1].last)


def test_active_ranks_choose_their_neighbours_by_a_random_seed():
    events = [Run("ad_psgd", steps=20, seed=seed).events for seed in (0, 0, 1)]
    chosen = [
        [
            [other for rank, other in run if rank == active and other is not None]
            for active in (1, 3)
        ]
        for run in events
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    assert chosen[0][0] != chosen[0][1]
    assert all(set(others) == {0, 2, 4} for others in chosen[0])


@pytest.mark.parametrize("lengths", [(3, 0, 9, 1, 4), (0, 7, 0, 0, 2)])
def test_ranks_with_other_numbers_of_minibatches_end_together(lengths):
    run = Run("ad_psgd", UNEVEN, lengths=lengths, barrier_every=4)
    assert [len(own) for own in run.own] == list(lengths)
    numbers = [[step.number for step in rank] for rank in run.steps]
    assert numbers == [numbers[0]] * SIZE and numbers[0][-1] == sum(lengths) // SIZE
    assert sum(step.examples for step in run.steps[0]) == sum(lengths)


@pytest.mark.parametrize("name", ["ad_psgd", "async_diloco"])
def test_ranks_without_examples_end_and_take_part(name):
    run = Run(name, batch=np.arange(2), barrier_every=8)
    assert run.steps[0][-1].number == 12 and run.steps[3][-1].examples == 8
    assert np.abs(run.last[4]).max() > 0.01


@pytest.mark.parametrize("speeds", [EVEN, UNEVEN])
def test_async_diloco_that_waits_for_all_workers_has_the_bits_of_diloco(speeds):
    own = {"outer_every": 4, "update": optax.sgd(RATE, momentum=0.5), "steps": 22}
    waiting = Run(
        "async_diloco", speeds, aggregation_count=SIZE, barrier_every=4, **own
    )
    by_rounds = Run("diloco", speeds, **own)
    assert np.array_equal(waiting.vectors, by_rounds.vectors)
    at_once = Run("async_diloco", speeds, aggregation_count=SIZE, **own)
    assert np.array_equal(at_once.last, by_rounds.last)
    assert at_once.steps[0][0].measures["staleness"] == 0


def test_async_diloco_of_one_worker_has_the_bits_of_diloco():
    runs = [Run(name, size=1, outer_every=4) for name in ("async_diloco", "diloco")]
    assert np.array_equal(runs[0].last, runs[1].last)


def served(speeds, steps, every, rate, discount):
    """Return the outer parameters after each arrival at rank 0, as in the paper.

    Rank 0 serves between its updates, of 1 s each; arrival times are not integers.
    """
    theta, tasks = np.zeros(DIM), [0] * SIZE
    read = {rank: (theta, 0, rank) for rank in range(SIZE)}  # θ, step, shard
    due = {rank: every * speeds[rank] for rank in range(SIZE)}
    tasks, version, outer = [every] * SIZE, 0, []
    while due:
        order = {r: (np.ceil(t), t) if r else (t, t + 0.5) for r, t in due.items()}
        rank = min(order, key=order.get)
        now = order[rank][0]
        start, before, shard = read[rank]
        change = (1 - (1 - RATE * SCALES[shard]) ** every) * (start - TARGETS[shard])
        weight = 1 / np.sqrt(SIZE * (1 + version - before if discount else 1))
        theta, version = theta - rate * weight * change, version + 1
        outer.append(theta)
        least = min(tasks)
        if least == steps:
            del due[rank]
            continue
        shard = rank if tasks[rank] == least else tasks.index(least)
        tasks[shard] += every
        read[rank], due[rank] = (theta, version, shard), now + every * speeds[rank]
    return np.array(outer)


@pytest.mark.parametrize("discount", [False, True])
def test_async_diloco_takes_the_steps_of_a_simulation_of_its_arrivals(discount):
    speeds = (1.0, 3.7, 0.47, 1.31, 2.93)
    own = {"outer_lr": 0.5, "outer_momentum": 0.0, "momentum_every": 1}
    run = Run("async_diloco", speeds, outer_every=3, steps=12, discount=discount, **own)
    # all ranks but 0 continue after rank 0 is finished, when it serves at once
    expected = served(speeds, 12, 3, 0.5, discount)
    observed = np.array([vector for _, vector in run.own[0]])
    assert len(observed) == len(expected) == 4 * SIZE
    np.testing.assert_allclose(observed, expected, rtol=1e-4, atol=1e-5)


def test_fast_workers_have_more_tasks_and_all_examples_are_used_once():
    """The last task of a worker with 10 s per update takes 40 s, or 10 s."""
    speeds = (1.0, 1.0, 1.0, 1.0, 10.0)
    even = 75 * SIZE / sum(1 / np.array(speeds))  # virtual seconds without waits
    seconds = []
    for dynamic in (False, True):
        run = Run("async_diloco", speeds, steps=75, outer_every=4, dynamic=dynamic)
        (step,) = run.steps[0]
        assert (step.examples, step.number) == (75 * SIZE, 75)
        seconds.append(max(run.seconds) - even)
    assert 20 < seconds[0] < 50 and seconds[1] < 20
    assert even + 50 < 75 * 10 / 4  # of synchronous training


def test_dynamic_tasks_of_all_workers_take_equally_long():
    """Workers with 1 s and 2 s per update have 4 and 2 updates after the first step."""
    own = {"outer_every": 4, "aggregation_count": SIZE, "dynamic": True}
    run = Run("async_diloco", (1.0, 1.0, 1.0, 1.0, 2.0), steps=40, **own)
    times = [0.0, *(seconds for seconds, _ in run.own[0])]
    assert np.diff(times)[:6] == pytest.approx([8, 4, 4, 4, 4, 4], rel=0.01)


@pytest.mark.parametrize("count", (2, 3, 4))
def test_the_last_outer_step_has_the_changes_that_are_left(count):
    own = {"outer_every": 4, "aggregation_count": count}
    run = Run("async_diloco", UNEVEN, steps=12, **own)
    (step,) = run.steps[0]
    assert (step.examples, step.number) == (12 * SIZE, 12)
    assert len(run.own[0]) == -(-3 * SIZE // count)


@pytest.mark.parametrize("changes", (1, 2, 5))
def test_weights_of_equal_changes_add_up_to_one_in_the_steps_with_one_momentum(changes):
    delayed = Outer(8, 0.7, 0.9, 4).weight(changes, SIZE)
    assert 4 * changes * delayed == pytest.approx(1)
    # the sum of m independent changes has the length of the mean of K: √m w = 1/√K
    at_once = Outer(8, 0.7, 0.9, 1).weight(changes, SIZE)
    assert changes * at_once**2 == pytest.approx(1 / SIZE)


@pytest.mark.parametrize("momentum_every", (1, 3))
def test_a_resumed_run_continues_from_the_saved_momentum(momentum_every):
    own = {"outer_every": 4, "barrier_every": 4, "momentum_every": momentum_every}
    own["aggregation_count"] = SIZE  # so that arrivals have no effect on bits
    whole, half = (Run("async_diloco", steps=steps, **own) for steps in (16, 8))
    saved = {"memory": [rank[-1] for rank in half.memories]}
    rest = Run("async_diloco", steps=8, state=half.steps[0][-1].state, **own | saved)
    assert np.array_equal(rest.last[0], whole.last[0])


def test_dynamic_tasks_of_updates_without_seconds_have_the_full_length():
    own = {"outer_every": 4, "barrier_every": 12, "steps": 12}
    run = Run("async_diloco", (0.0,) * SIZE, dynamic=True, **own)
    assert len(run.own[0]) == SIZE * 12 // 4  # outer steps


def test_delayed_nesterov_is_nesterov_by_the_mean_of_equally_stale_changes():
    changes = np.random.default_rng(0).standard_normal((3, 4, DIM))
    params, state = np.ones(DIM), outer_state(np.ones(DIM))
    expected, momentum = np.ones(DIM), np.zeros(DIM)
    for group in changes:
        for change in group:
            delayed_nesterov(params, state, change / 4, 0.7, 0.9, 4)
        mean = group.mean(0)
        nesterov(expected, momentum, mean, mean, 0.7, 0.9)
        np.testing.assert_allclose(params, expected, rtol=1e-12)
        np.testing.assert_allclose(state.momentum, momentum, rtol=1e-12)
    assert state.steps[0] == 12


def test_delayed_momentum_of_stale_changes_converges_where_nesterov_diverges():
    own = {"steps": 48, "outer_every": 4}
    delayed = Run("async_diloco", UNEVEN, **own).last[0]
    naive = Run("async_diloco", UNEVEN, momentum_every=1, **own).last[0]
    assert np.abs(delayed - MINIMUM).max() < 1 < np.abs(naive - MINIMUM).max()


@pytest.mark.parametrize("name", ["ad_psgd", "async_diloco"])
def test_a_recorded_run_is_replayed_with_equal_bits_at_other_speeds(name):
    def program(speeds):
        def train(comm):
            problem = quadratics()
            made = Metered(Delayed(comm, repeat(speeds[comm.rank])))
            batches = repeat(np.arange(SIZE), 12)
            (step,) = strategy(name, problem)(
                *(problem, batches, optax.sgd(RATE)), comm=made, timer=Timer(comm.Wtime)
            )
            return np.array(step.memory().vector)

        return train

    def run(speeds):
        return lambda wrap: sim.run(lambda comm: program(speeds)(wrap(comm)), SIZE)

    expected, codes = recorded(run(UNEVEN), SIZE)
    assert np.array_equal(replayed(run(EVEN), codes), expected)
    assert not np.array_equal(run(EVEN)(lambda comm: comm), expected)


@pytest.mark.parametrize("name", ["ad_psgd", "async_diloco"])
def test_a_resumed_run_continues_from_the_saved_replicas(name):
    own = {"barrier_every": 6, "update": optax.sgd(RATE, momentum=0.5)}
    own |= {"outer_every": 2} if name == "async_diloco" else {}
    first = Run(name, UNEVEN, steps=6, **own)
    memory = [rank[-1] for rank in first.memories]
    saved = {"memory": memory, "state": first.steps[0][-1].state}
    rest = Run(name, UNEVEN, steps=60, **own | saved)
    assert rest.steps[0][-1].number == 60
    found = np.array(rest.steps[0][-1].params["x"])
    assert np.abs(found - MINIMUM).max() < 0.5
    saved["update"] = optax.sgd(0.0, momentum=0.5)  # which moves nothing
    still = {"outer_lr": 0.0} if name == "async_diloco" else {}
    kept = Run(name, UNEVEN, steps=6, **own | saved | still)
    np.testing.assert_allclose(kept.last.sum(0), first.last.sum(0), atol=1e-6)
    if name == "async_diloco":  # the number of outer steps is the last of the leaves
        assert kept.memories[0][-1][-1] == 2 * first.memories[0][-1][-1]
    with pytest.raises(BadInput, match="start as many"):
        Run(name, steps=2, size=SIZE - 1, **own | saved)


@pytest.mark.parametrize(
    "name, own, message",
    [
        ("ad_psgd", {"topology": "random_groups:5"}, "whose rounds repeat"),
        ("async_diloco", {"aggregation_count": 6}, "changes of 1 to 5 workers"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, own, message):
    with pytest.raises(BadInput, match=message):
        Run(name, **own)
