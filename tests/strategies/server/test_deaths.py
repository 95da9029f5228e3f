"""Workers die at random times: the others finish, under every consistency."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.events import Death
from dml.strategies.server.report import Report, collect_living_reports
from dml.strategies.server.roles import replicated_roles, roles
from dml.strategies.server.server import Setup, row_partition, server
from dml.types import BadInput
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from tests.strategies.server.small import Descent, batches, delayed, problem

RANKS, SERVERS, CLOCKS = 6, 2, 8
WORKERS = RANKS - SERVERS
NETWORK = sim.Uniform(1e-2, 1e-6, 0)
CHOICE = Choice(staleness=2, softsync=2)
PLAIN = roles(RANKS, SERVERS)


def train(comm, name, elastic=True, who=PLAIN, **options):
    """Train; return this rank's steps and, on the first living rank, all reports."""
    task, report = problem(), Report()
    comm = delayed(comm, "shifted_exponential:1,1")
    rule = consistency(name, CHOICE, who.workers)
    setup = Setup(who, rule, elastic=elastic, **options)
    timer = Timer(comm.Wtime)
    how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
    steps = [*server(task, batches(CLOCKS), Descent, **how)]
    split = row_partition(comm, task, SERVERS)
    end = comm.Wtime()
    found = collect_living_reports(comm, who, split, task.params.shape[1], report)
    table = steps[-1].params()
    assert found is None or np.array_equal(table, found.table)
    return steps, found, end


def run(name, *deaths, order=0, **options):
    """Return the results of the living ranks by rank."""
    events = [Death(*death) for death in deaths]
    program = lambda comm: train(comm, name, **options)  # noqa: E731
    results = sim.run(program, RANKS, NETWORK, order, events=events)
    return {rank: result for rank, result in enumerate(results) if result}


@pytest.mark.parametrize("name", CONSISTENCIES)
def test_workers_die_at_random_times_and_the_others_finish(name):
    start = problem().evaluate(problem().params)["objective"]
    end = run(name)[0][2]
    draws = np.random.default_rng(0)
    counts = []
    for seed in range(8):
        dying = draws.choice(WORKERS, 1 + seed % 2, replace=False).tolist()
        deaths = [(rank, draws.uniform(0, end)) for rank in dying]
        results = run(name, *deaths, order=seed)
        assert set(range(RANKS)) - set(results) <= set(dying)
        for rank in set(results) & set(range(WORKERS)):
            assert results[rank][0][-1].number == CLOCKS
        found = results[min(results)][1]
        counts.append(found.summary["dead_workers"])
        assert counts[-1] <= len(dying)
        assert problem().evaluate(found.table)["objective"] < start
    assert sum(counts) > 6


@pytest.mark.parametrize("name", CONSISTENCIES)
def test_an_elastic_run_without_deaths_has_the_bits_of_another_run(name):
    elastic, plain = run(name)[0][1], run(name, elastic=False)[0][1]
    assert np.array_equal(elastic.table, plain.table)
    assert elastic.summary == pytest.approx(plain.summary)
    assert not plain.summary["dead_workers"]


def test_the_gradients_of_a_dead_worker_stop_at_its_death():
    log = run("async", (1, 5.0))[0][1].log
    seconds, worker = log[:, 0], log[:, 1]
    assert 4 < seconds[worker == 1].max() < 5.5 < seconds[worker == 0].max()


def test_a_worker_that_dies_after_its_last_message_is_not_counted():
    def program(comm):
        found = train(comm, "async")[1]
        comm.platform.compute(99)
        return found

    found = sim.run(program, RANKS, NETWORK, events=[Death(2, 90)])[0]
    assert found.summary["dead_workers"] == 0


def test_colocated_servers_and_epochs_are_refused():
    def program(comm, every, **options):
        setup = Setup(
            roles(2, **options), CONSISTENCIES["bsp"](CHOICE, 1), elastic=True
        )
        timer = Timer(comm.Wtime)
        how = {"comm": comm, "timer": timer, "setup": setup, "every": every}
        return [*server(problem(), batches(1), Descent, **how)]

    with pytest.raises(BadInput, match="expected servers on ranks of their own"):
        sim.run(lambda comm: program(comm, None, colocated=True), 2)
    with pytest.raises(BadInput, match="expected an elastic run without epochs"):
        sim.run(lambda comm: program(comm, 1), 2)


REPLICATED = replicated_roles(9, 2, 2, 1)  # 3 workers, and 2 servers of 3 ranks each


@pytest.mark.parametrize("name", CONSISTENCIES)
def test_replicated_servers_die_and_the_table_has_all_updates(name):
    def program(comm, who):
        return train(comm, name, who=who)

    plain = sim.run(lambda comm: program(comm, roles(5, 2)), 5, NETWORK)[0]
    whole = sim.run(lambda comm: program(comm, REPLICATED), 9, NETWORK)[0]
    end = whole[2]
    if name == "bsp":
        assert np.array_equal(whole[1].table, plain[1].table)
    draws = np.random.default_rng(3)
    for seed in range(5):
        dying = [int(draws.choice([3, 4])), int(draws.choice([6, 7]))]
        events = [Death(rank, draws.uniform(0, end)) for rank in dying]
        call = lambda comm: program(comm, REPLICATED)  # noqa: E731
        steps, found, _ = sim.run(call, 9, NETWORK, seed, events=events)[0]
        assert steps[-1].number == CLOCKS
        if name == "bsp":
            assert np.array_equal(found.table, plain[1].table)
        for index in range(2):
            rows = found.log[found.log[:, -1] == index]
            pushes = [(worker, clock) for _, worker, clock, *_ in rows.tolist()]
            assert len(set(pushes)) == len(pushes) == 3 * CLOCKS - found_skips(found)


def found_skips(found):
    """Return the number of gradients that workers skipped as backup workers."""
    return int(found.summary["skipped_clocks"])
