import math
from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim import maxplus
from dml.sim.delays import delay_distribution, drawing, seconds, straggler
from dml.wire.comm import Metered
from dml.wire.server.barriers import asynchronous, k_of_p, ssp, synchronous

FREE = sim.Uniform(0, 0, 0)  # messages take no time
LAWS = ("shifted_exponential:1,0.5", "pareto:1,1.5*1,0.3", "constant:1")
STEPS = 12


def starts(program, text, size, network=FREE, seed=0):
    """When each step of each worker begins on virtual ranks."""

    def live(comm):
        return program(
            comm,
            straggler(comm, drawing(delay_distribution(text), 5, comm.rank)),
            STEPS,
        )

    *workers, server = sim.run(live, size + 1, network, seed)
    assert not len(server)
    return np.array(workers).T


@pytest.mark.parametrize("size", (1, 2, 7, 32))
@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("staleness", (0, 1, 2, 4, math.inf))
def test_bounded_staleness_takes_as_long_as_by_max_and_plus(staleness, text, size):
    found_TxP = starts(partial(ssp, staleness=staleness), text, size)
    seconds_TxP = seconds(delay_distribution(text), 5, STEPS, size)
    wanted_TxP = maxplus.ssp(seconds_TxP, staleness)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("k, size", ((1, 1), (1, 4), (3, 4), (4, 4), (24, 32)))
def test_k_of_p_takes_as_long_as_by_max_and_plus(text, k, size):
    found_TxP = starts(partial(k_of_p, k=k), text, size)
    wanted_TxP = maxplus.k_of_p(seconds(delay_distribution(text), 5, STEPS, size), k)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("k, size", ((1, 4), (3, 4), (4, 4)))
def test_who_is_cut_off_sends_no_word_of_that_step(k, size):
    def live(comm):
        metered = Metered(comm)
        k_of_p(
            metered,
            straggler(comm, drawing(delay_distribution(LAWS[0]), 5, comm.rank)),
            STEPS,
            k,
        )
        return metered.messages_sent

    *workers, server = sim.run(live, size + 1, FREE)
    assert (sum(workers), server) == (STEPS * k + size, STEPS * size)


@pytest.mark.parametrize("size", (1, 2, 7, 32))
def test_a_barrier_is_no_staleness_and_no_bound_is_no_waiting(size):
    text = LAWS[0]
    tight = starts(synchronous, text, size)
    assert tight == pytest.approx(starts(ssp, text, size), rel=1e-12)
    loose = starts(asynchronous, text, size)
    alone_TxP = np.cumsum(seconds(delay_distribution(text), 5, STEPS, size), axis=0)
    assert loose[1:] == pytest.approx(alone_TxP[:-1], rel=1e-12)


@pytest.mark.parametrize("program", (synchronous, partial(k_of_p, k=3), ssp))
def test_ranks_that_start_in_another_order_begin_their_steps_at_the_same_times(program):
    first = starts(program, LAWS[0], 4)
    assert np.array_equal(first, starts(program, LAWS[0], 4, seed=9))


def test_a_slow_wire_shows_in_every_way_that_waits():
    slow = sim.Uniform(alpha=0.1, beta=0, gamma=0)
    for program in (synchronous, partial(k_of_p, k=3), ssp):
        late = starts(program, "constant:1", 4, slow)
        assert (np.diff(late, axis=0) >= 1.2 - 1e-12).all()
