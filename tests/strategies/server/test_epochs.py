"""Epochs on parameter servers are one run that is continued, with its state."""

from functools import partial
from itertools import islice

import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.data.sparse.ratings import generated
from dml.metrics.timer import Timer
from dml.models.sparse.factors import problem
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.update.table import table
from dml.wire.comm import Metered
from dml.wire.server.consistency import Choice, consistency

CLOCKS, EVERY = 12, 4


def task():
    return problem(*generated(30, 20, 500, 3, 0), factors=4, mu=0.05, seed=0)


def train(comm, problem, rule, first, last, **own):
    """Train by the minibatches from first to last; return what rank 0 collects."""
    comm, who = Metered(comm), roles(comm.size, servers=2)
    rate = partial(table, rule, rate=0.5)
    batches = islice(minibatches(problem.examples, 40, 0), first, last)
    options = {"comm": comm, "timer": Timer(comm.Wtime)}
    setup = Setup(who, consistency("bsp", Choice(), who.workers))
    steps = server(problem, batches, rate, setup=setup, **options, **own)
    for step in steps:
        if step.epoch == (last - first) // EVERY:
            ended = step.number, step.params(), step.state()
    if not own:
        ended = step.number, step.params(), None
    return None if comm.rank else ended


def on_ranks(*args, **own):
    return sim.run(lambda comm: train(comm, *args, **own), 5)[0]


@pytest.mark.parametrize("rule", ("sgd", "momentum", "adam"))
def test_epochs_of_bsp_have_the_bits_of_one_run(rule):
    _, whole, _ = on_ranks(task(), rule, 0, CLOCKS)
    number, values, state = on_ranks(task(), rule, 0, CLOCKS, every=EVERY)
    assert number == CLOCKS
    assert values.tobytes() == whole.tobytes()
    assert [each.shape for each in state] == [values.shape] * len(state)


@pytest.mark.parametrize("rule", ("momentum", "adam"))
def test_a_state_of_the_update_resumes_the_run(rule):
    _, whole, _ = on_ranks(task(), rule, 0, CLOCKS, every=EVERY)
    _, values, state = on_ranks(task(), rule, 0, 2 * EVERY, every=EVERY)
    half = task()._replace(params=values)
    own = {"every": EVERY, "state": state}
    _, rest, _ = on_ranks(half, rule, 2 * EVERY, CLOCKS, **own)
    assert rest.tobytes() == whole.tobytes()


def test_arguments_of_epochs_without_epochs_are_refused():
    with pytest.raises(TypeError, match="expected `every` with summary"):
        on_ranks(task(), "sgd", 0, CLOCKS, summary={})
