"""Deaths at any moment: the run continues and ends with the undisturbed bits."""

from functools import partial

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import draws
from dml.metrics.timer import Timer
from dml.sim.events import Death
from dml.strategies.elastic import Elastic, Saved
from dml.strategies.synchronous import synchronous
from dml.types import Problem, RankFailed, Rows
from dml.update.table import table
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.membership import SPARE, choose_workers
from dml.wire.recovery import Members
from dml.wire.recovery.members import Recovery
from dml.wire.reducers.fixed_point import order_free
from tests.strategies.small import BATCH, COUNT, optimizer, problem
from tests.wire.comm import orders

SHARDS, WORKERS, SIZE = 5, 4, 5  # the last rank is a spare
NETWORK = sim.Uniform(1e-5, 1e-9, 1e-10)
NAMES = sorted(set(orders.BASIC) - {"auto"})
TARGETS = np.random.default_rng(0).standard_normal((COUNT, 40)).astype(np.float32)


def gradient(row_1xD, indices):
    """Return half the mean squared distance to the targets, and its gradient."""
    errors = row_1xD - TARGETS[indices % COUNT]
    loss = float((errors**2).sum() / 2 / len(indices))
    return loss, Rows(np.zeros(1, np.int32), errors.mean(axis=0, keepdims=True))


def row(params=None):
    """Return the problem of one row of a table; without JAX, for many runs."""
    params = np.zeros((1, 40), np.float32) if params is None else params
    return Problem(params, COUNT, gradient, lambda params: {}, touched=np.zeros)


def attempt(make, update, name, updates, comm, saved, commit):
    steps = synchronous(
        make(saved.params().copy() if make is row else saved.params()),
        draws(COUNT, BATCH, 0, updates * BATCH, saved.number * BATCH),
        update,
        comm=comm,
        timer=Timer(comm.Wtime),
        reducer=order_free(ALLREDUCE[name]),
        shards=SHARDS,
        commit=commit,
        state=saved.state(),
    )
    for step in steps:
        yield step._replace(number=saved.number + step.number)


def run_rank(make, update, start, name, updates, requests, comm):
    comm = Metered(comm)
    members = Members(comm, min(WORKERS, comm.size))
    run = Elastic(
        members, partial(attempt, make, update, name, updates), start, updates, requests
    )
    losses = [(step.number, step.loss) for step in run.steps()]
    last = run.finish(lambda workers: digest(run.saved))
    return losses, last, members, comm.Wtime()


def digest(saved):
    leaves = jax.tree.leaves((saved.params(), saved.state()))
    return saved.number, b"".join(np.asarray(leaf).tobytes() for leaf in leaves)


def train_tree(name, *deaths):
    """Train a network of JAX by Adam."""
    start, adam = problem().params, optimizer("adam", False)
    saved = Saved(0, lambda: start, lambda: adam.init(start))
    program = partial(run_rank, problem, adam, saved, name, 4, no_requests)
    return sim.run(program, SIZE, NETWORK, events=[Death(*death) for death in deaths])


def train_row(name, *deaths, size=SIZE, updates=4, requests=None):
    """Train a row by momentum."""
    update = partial(table, "momentum", rate=0.1)
    params = row().params
    empty = update(params.copy()).state
    saved = Saved(0, lambda: params, lambda: tuple(map(np.copy, empty)))
    program = partial(
        run_rank, row, update, saved, name, updates, requests or no_requests
    )
    return sim.run(program, size, NETWORK, events=[Death(*death) for death in deaths])


def no_requests():
    return False, 0


def check(results, undisturbed):
    """Check that living workers have the losses and the state without deaths."""
    losses, last, *_ = undisturbed
    for result in filter(None, results):
        if result[1] is None:
            assert not result[0]  # a spare that never worked
        else:
            assert result[1] == last
            assert result[0] == [pair for pair in losses if pair in result[0]]


def test_without_deaths_the_bits_are_those_of_synchronous():
    def program(comm):
        saved = Saved(0, lambda: row().params, lambda: None)
        update = partial(table, "momentum", rate=0.1)
        steps = attempt(row, update, "ring", 4, Metered(comm), saved, lambda: None)
        return [(step.number, step.loss) for step in steps]

    plain = sim.run(program, WORKERS, NETWORK)[0]
    *workers, spare = train_row("ring")
    assert all(losses == plain for losses, *_ in workers)
    assert spare[0] == [] and spare[1] is None


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_that_dies_at_any_moment_changes_no_bit(name):
    """40 random moments for each all-reduce."""
    undisturbed = train_row(name)[0]
    rng = np.random.default_rng(NAMES.index(name))
    recovered = 0
    for time in rng.uniform(0, undisturbed[-1], 40):
        results = train_row(name, (int(rng.integers(SIZE)), time))
        check(results, undisturbed)
        recovered += sum(bool(r[2].recoveries) for r in filter(None, results)) > 0
    assert recovered > 20


def test_networks_of_jax_keep_their_bits():
    undisturbed = train_tree("ring")[0]
    rng = np.random.default_rng(0)
    for time in rng.uniform(0, undisturbed[-1], 4):
        check(train_tree("ring", (int(rng.integers(SIZE)), time)), undisturbed)


def test_several_deaths_also_during_recoveries_change_no_bit():
    undisturbed = train_row("halving_doubling", updates=6)[0]
    rng = np.random.default_rng(1)
    for _ in range(30):
        first = rng.uniform(0, undisturbed[-1])
        # a recovery takes about 4e-4 s
        times = first + np.append(0, rng.uniform(0, 6e-4, 2))
        victims = rng.permutation(SIZE)[:3].tolist()
        deaths = zip(victims, times.tolist(), strict=True)
        results = train_row("halving_doubling", *deaths, updates=6)
        check(results, undisturbed)
        assert any(result and result[1] for result in results)


def test_workers_keep_their_order_and_spares_follow():
    assert choose_workers([3, SPARE, 0, SPARE, 2], 4) == [2, 4, 0, 1]
    assert choose_workers([3, SPARE, 0, SPARE, 2], 2) == [2, 4]


def test_a_spare_takes_the_place_of_a_worker_and_then_there_are_fewer():
    *_, members, end = train_row("ring")[0]
    results = train_row("ring", (1, end / 3), (0, end), updates=8)
    survivor = results[2][2]
    sizes = [(each.workers, each.deaths) for each in survivor.recoveries]
    assert sizes == [(4, 1), (3, 1)]
    assert all(isinstance(each, Recovery) for each in survivor.recoveries)
    assert results[4][0][0][0] > 1  # the spare began in the middle


def test_workers_leave_and_join_on_request_of_worker_0():
    calls = iter([4, 4, 2, 2, 2, 5, 5, 5])  # at each vote
    late = lambda: (False, 4)  # noqa: E731  # others still read an earlier request

    def requests():
        return False, next(calls, 0)

    undisturbed = train_row("ring", updates=8)[0]

    def run(comm):
        request = requests if comm.rank == 0 else late
        update = partial(table, "momentum", rate=0.1)
        params = row().params
        empty = update(params.copy()).state
        saved = Saved(0, lambda: params, lambda: tuple(map(np.copy, empty)))
        return run_rank(row, update, saved, "ring", 8, request, comm)

    results = sim.run(run, SIZE, NETWORK)
    check(results, undisturbed)
    assert [each.workers for each in results[0][2].recoveries] == [2, 5]
    assert results[0][2].deaths == 0


def test_a_stop_of_one_worker_ends_the_run_on_all_after_the_same_update():
    def run(comm):
        votes = iter(range(100))
        request = lambda: (comm.rank == 1 and next(votes) == 2, 0)  # noqa: E731
        update = partial(table, "sgd", rate=0.1)
        saved = Saved(0, lambda: row().params, lambda: ())
        return run_rank(row, update, saved, "tree", 8, request, comm)[0]

    *workers, spare = sim.run(run, SIZE, NETWORK)
    assert all([number for number, _ in losses] == [1, 2, 3] for losses in workers)
    assert spare == []


def test_a_death_before_the_first_update_is_survived():
    results = train_row("ring", (2, 1e-9))
    check(results, train_row("ring")[0])


def test_the_last_operation_is_repeated_until_all_workers_have_completed_it():
    def program(comm):
        members = Members(comm, 3)
        calls = []

        def call(workers):
            calls.append(workers.size)
            if workers.rank == 0 and len(calls) == 1:
                raise RankFailed("for the test")
            return workers.size

        value = members.finish(call, lambda comm, sources: None)
        if not members.ended:
            members.end()
        return value, calls

    assert sim.run(program, 3, NETWORK) == [(3, [3, 3])] * 3


def test_a_failed_verification_does_not_repeat_an_update():
    """One worker fails after update 2, which is saved on all workers."""
    undisturbed = train_row("ring")[0]

    def run(comm):
        failures = iter([RankFailed("for the test")] if comm.rank == 1 else [])

        def verify(workers, step):
            if step.number == 2:
                for failure in failures:
                    raise failure

        update = partial(table, "momentum", rate=0.1)
        params = row().params
        empty = update(params.copy()).state
        saved = Saved(0, lambda: params, lambda: tuple(map(np.copy, empty)))
        members = Members(Metered(comm), WORKERS)
        continued = partial(attempt, row, update, "ring", 4)
        elastic = Elastic(members, continued, saved, 4, no_requests, verify)
        losses = [(step.number, step.loss) for step in elastic.steps()]
        last = elastic.finish(lambda workers: digest(elastic.saved))
        return losses, last, len(members.recoveries)

    results = sim.run(run, SIZE, NETWORK)
    check(results, undisturbed)
    assert results[0][0] == undisturbed[0] and results[0][2] == 1
