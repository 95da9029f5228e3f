"""Jobs on random places of a network."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.dragonfly import Dragonfly
from dml.sim.networks.fat_tree import FatTree
from dml.sim.networks.placed import Placed, allocation
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans.schedules import SCHEDULES


@pytest.mark.parametrize("busy", (0.0, 0.5, 1.0))
def test_places_are_free_and_in_order(busy):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = allocation(72, 16, busy, rng)
        assert len(places) == 16
        assert np.all(np.diff(places) > 0)
        assert places[0] >= 0 and places[-1] < 72
    whole = allocation(16, 16, busy, np.random.default_rng(0))
    assert np.array_equal(whole, np.arange(16))


def test_other_jobs_have_adjacent_places():
    """With all but the job's places taken, the job's are few pieces, not scattered."""
    pieces = [
        np.count_nonzero(np.diff(allocation(4096, 256, busy, rng)) > 1)
        for busy, rng in (
            (0.0, np.random.default_rng(0)),
            (1.0, np.random.default_rng(0)),
        )
    ]
    assert pieces[1] < pieces[0] / 4


@pytest.mark.parametrize("net", (Dragonfly(2), FatTree(4)))
def test_a_job_on_all_places_takes_the_time_of_the_network(net):
    size = net.capacity
    job = Placed(net, np.arange(size))
    rounds = list(SCHEDULES["halving_doubling"](size, 4096))
    found, alone = (sim.evaluate(rounds, one, size).clocks for one in (job, net))
    assert np.array_equal(found, alone)
    assert np.array_equal(job.group(np.arange(size)), net.group(np.arange(size)))


def test_ranks_of_a_job_run_on_their_places():
    """A pair in two groups is three links apart, a pair on one router none."""
    net = Dragonfly(2)
    times = []
    for places in ((0, 1), (0, 40)):
        job = Placed(net, np.array(places))
        assert (len(set(job.group(np.arange(2)).tolist())) == 2) == (places[1] == 40)

        def program(comm):
            ALLREDUCE["butterfly"](comm, np.zeros(4, np.float32))
            return comm.Wtime()

        times.append(max(sim.run(program, 2, job)))
        rounds = list(SCHEDULES["butterfly"](2, 4))
        assert sim.evaluate(rounds, job, 2).clocks.max() == pytest.approx(times[-1])
    links = np.diff(net.paths(np.array([0]), np.array([40])).starts)[0]
    hops = links * (net.rates.hop + 0)
    assert times[1] - times[0] == pytest.approx(hops, rel=1e-6)
