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
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.recovery import Members
from dml.wire.reducers.fixed_point import order_free
from tests.strategies.small import BATCH, COUNT, optimizer, problem

UPDATES, SHARDS = 6, 5
NETWORK = sim.Uniform(1e-5, 1e-9, 1e-10)
NAMES = sorted(set(ALLREDUCE) - {"auto"})


def attempt(name, comm, saved, commit):
    steps = synchronous(
        problem(saved.params()),
        draws(COUNT, BATCH, 0, UPDATES * BATCH, saved.number * BATCH),
        optimizer("adam", False),
        comm=comm,
        timer=Timer(comm.Wtime),
        reducer=order_free(ALLREDUCE[name]),
        shards=SHARDS,
        commit=commit,
        state=saved.state(),
    )
    for step in steps:
        yield step._replace(number=saved.number + step.number)


def run_rank(name, workers, wishes, comm):
    comm = Metered(comm)
    members = Members(comm, workers)
    start = problem().params
    saved = Saved(0, lambda: start, lambda: optimizer("adam", False).init(start))
    run = Elastic(members, partial(attempt, name), saved, UPDATES, wishes(comm))
    losses = [(step.number, step.loss) for step in run.steps()]
    last = run.finish(lambda workers: digest(run.saved))
    return losses, last, members.recoveries, comm.Wtime()


def digest(saved):
    leaves = jax.tree.leaves((saved.params(), saved.state()))
    return saved.number, b"".join(np.asarray(leaf).tobytes() for leaf in leaves)


def train(name, size, workers, *deaths, wishes=lambda comm: lambda: (False, 0)):
    events = [Death(*death) for death in deaths]
    program = partial(run_rank, name, workers, wishes)
    return sim.run(program, size, NETWORK, events=events)


def test_without_deaths_the_bits_are_those_of_synchronous():
    plain = sim.run(
        lambda comm: [
            step.loss
            for step in attempt(
                "ring",
                Metered(comm),
                Saved(0, lambda: problem().params, lambda: None),
                lambda: None,
            )
        ],
        4,
        NETWORK,
    )
    *workers, spare = train("ring", 5, 4)
    for losses, *_ in workers:
        assert losses == list(enumerate(plain[0], 1))
    assert spare[0] == [] and spare[1] is None


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_that_dies_at_any_moment_changes_no_bit(name):
    undisturbed = train(name, 5, 4)[0]
    rng = np.random.default_rng(NAMES.index(name))
    for time in rng.uniform(0, undisturbed[-1], 100):
        victim = int(rng.integers(5))
        results = train(name, 5, 4, (victim, time))
        living = [result for result in results if result]
        assert len(living) >= 4
        for losses, last, *_ in living:
            if last is None:
                assert not losses
                continue
            assert last == undisturbed[1]
            assert losses == undisturbed[0][len(undisturbed[0]) - len(losses) :]
