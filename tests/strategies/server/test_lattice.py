"""Consistencies that are bit-identical to one rank."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.workers import WorkerOptions
from dml.types import BadInput
from dml.update.table import table
from dml.wire.comm import Metered
from dml.wire.server import updates
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.server.small import CHOICE, DELAYS, alone, batches, problem, ran

BOUND_0, NO_BACKUPS = Choice(staleness=0), Choice(backup=0)
EXACT = {
    "bsp": {},
    "ssp": {"choice": BOUND_0},
    "essp": {"choice": BOUND_0},
    "bsp with prefetch": {"worker_options": WorkerOptions(prefetch=True)},
    "bsp in another order of running": {"order": 1},
}


def bits(found):
    return found.table.tobytes()


# every number of servers and of workers, both kinds of rows; 0: on the workers
@pytest.mark.parametrize(
    "servers, workers, dense",
    [
        (0, 1, True),
        (1, 1, False),
        (1, 2, True),
        (4, 2, False),
        (2, 3, True),
        (0, 5, False),
        (4, 5, True),
        (2, 8, False),
    ],
)
@pytest.mark.parametrize("way", EXACT)
def test_synchronous_ways_have_the_bits_of_one_rank(way, servers, workers, dense):
    more = {"servers": servers, "colocated": not servers, "dense": dense}
    found = ran(workers + servers, way.split()[0], delays=DELAYS, **more, **EXACT[way])
    assert bits(found) == alone(workers, dense).tobytes()
    assert found.summary["staleness_max"] == 0


@pytest.mark.parametrize("name", ["async", "softsync", "ssp", "essp", "backup"])
def test_one_worker_alone_is_one_rank(name):
    found = ran(2, name, choice=Choice(backup=0, staleness=0), delays=DELAYS)
    assert bits(found) == alone(1).tobytes()


def test_a_sum_in_the_order_of_arrival_is_caught(monkeypatch):
    monkeypatch.setattr(updates, "by_clock_and_worker", lambda push: 0)
    found = ran(6, "bsp", dense=True, delays=DELAYS)
    assert bits(found) != alone(5, dense=True).tobytes()


@pytest.mark.parametrize(
    "size, name, options",
    [
        (5, "backup", {"choice": NO_BACKUPS, "delays": DELAYS}),
        (5, "bsp", {"worker_options": WorkerOptions(microbatches=3)}),
        (4, "bsp", {"worker_options": WorkerOptions(microbatches=3), "colocated": 1}),
    ],
)
def test_backups_of_nobody_and_microbatches_change_only_rounding(size, name, options):
    found = ran(size, name, **options)
    np.testing.assert_allclose(found.table, alone(4), rtol=1e-4, atol=1e-3)
    assert found.summary["late"] == 0


@pytest.mark.parametrize(
    "name, colocated",
    [
        *(
            (name, True)
            for name in ("bsp", "async", "ssp", "essp", "softsync", "backup")
        ),
        ("async", False),
        ("essp", False),
    ],
)
def test_every_consistency_learns_on_any_roles(name, colocated):
    more = {"servers": 2, "colocated": colocated, "delays": DELAYS}
    found = ran(5, name, clocks=150, snapshots=5, **more)
    snapshots = found.snapshots[0].values, found.snapshots[-1].values
    best, end, first, last = (
        problem().evaluate(rows)["objective"]
        for rows in (alone(5, clocks=150), found.table, *snapshots)
    )
    assert end <= 1.02 * best
    assert last < first


def test_roles_refuse_what_leaves_no_worker_or_no_server():
    assert roles(8)[:2] == (6, (6, 7))
    assert roles(2)[:2] == (1, (1,))
    assert roles(3, colocated=True)[:2] == (3, (0, 1, 2))
    for message, *arguments in [
        ("2 ranks or more, a worker and a server, got 1", 1, 0),
        ("1 to 3 servers of 4 ranks, got 4", 4, 4),
        ("1 server or more, .* got -1", 4, -1),
        ("at most 3 servers on 3 colocated ranks, got 4", 3, 4, True),
    ]:
        with pytest.raises(BadInput, match=message):
            roles(*arguments)


CLOCKS, EVERY = 12, 4


def by_epochs(rule, first=0, last=CLOCKS, params=None, **own):
    """Train with minibatches first to last - 1; return number, params and state."""
    task = problem()
    task = task if params is None else task._replace(params=params)

    def program(comm):
        who = roles(comm.size, 2)
        setup = Setup(who, consistency("bsp", CHOICE, who.workers))
        how = {"comm": Metered(comm), "timer": Timer(comm.Wtime), "setup": setup}
        for step in server(task, batches(CLOCKS)[first:last], rule, **how, **own):
            if step.epoch == (last - first) // EVERY:
                return step.number, step.params(), step.state()

    return sim.run(program, 5)[0]


@pytest.mark.parametrize("rule", ("sgd", "momentum", "adam"))
def test_epochs_of_bsp_resumed_or_not_have_the_bits_of_one_run(rule):
    rule = partial(table, rule, rate=0.1)
    whole = ran(5, "bsp", servers=2, make=rule, clocks=CLOCKS)
    number, values, state = by_epochs(rule, every=EVERY)
    assert number == CLOCKS
    assert values.tobytes() == bits(whole)
    assert [each.shape for each in state] == [values.shape] * len(state)
    _, params, state = by_epochs(rule, last=2 * EVERY, every=EVERY)
    own = {"params": params, "state": state, "every": EVERY}
    assert by_epochs(rule, first=2 * EVERY, **own)[1].tobytes() == bits(whole)


def test_arguments_of_epochs_without_epochs_are_refused():
    with pytest.raises(TypeError, match="expected `every` with summary"):
        by_epochs(partial(table, "sgd", rate=0.1), summary={})
