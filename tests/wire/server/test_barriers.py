import math
from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim import maxplus
from dml.sim.delays import drawing, law, seconds, straggler
from dml.wire.comm import Metered
from dml.wire.server.barriers import asynchronous, k_of_p, ssp, synchronous

FREE = sim.Uniform(0, 0, 0)  # messages take no time
LAWS = ("shifted_exponential:1,0.5", "pareto:1,1.5*1,0.3", "constant:1")
STEPS = 12


def starts(program, text, size, seed=0, sent=None):
    """Return when each step of each worker begins on virtual ranks."""

    def live(comm):
        work = straggler(comm, drawing(law(text), 5, comm.rank))
        metered = Metered(comm)
        return program(metered, work, STEPS), metered.messages_sent

    found, messages = zip(*sim.run(live, size + 1, FREE, seed), strict=True)
    *workers, server = found
    assert not len(server)
    if sent:
        assert (sum(messages[:-1]), messages[-1]) == sent
    return np.array(workers).T


@pytest.mark.parametrize("size", (1, 2, 7, 32))
@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("staleness", (0, 1, 2, 4, math.inf))
def test_bounded_staleness_takes_as_long_as_by_max_and_plus(staleness, text, size):
    found_TxP = starts(partial(ssp, staleness=staleness), text, size)
    seconds_TxP = seconds(law(text), 5, STEPS, size)
    wanted_TxP = maxplus.ssp(seconds_TxP, staleness)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("k, size", ((1, 1), (1, 4), (3, 4), (4, 4), (24, 32)))
def test_k_of_p_takes_as_long_as_by_max_and_plus(text, k, size):
    sent = STEPS * k + size, STEPS * size  # who is cut off sends nothing of that step
    sent = None if text == "constant:1" else sent  # there all end at once
    found_TxP = starts(partial(k_of_p, k=k), text, size, size, sent)
    wanted_TxP = maxplus.k_of_p(seconds(law(text), 5, STEPS, size), k)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("size", (1, 2, 7, 32))
def test_a_barrier_is_no_staleness_and_no_bound_is_no_waiting(size):
    text = LAWS[0]
    tight = starts(synchronous, text, size)
    assert tight == pytest.approx(starts(ssp, text, size), rel=1e-12)
    loose = starts(asynchronous, text, size)
    alone_TxP = np.cumsum(seconds(law(text), 5, STEPS, size), axis=0)
    assert loose[1:] == pytest.approx(alone_TxP[:-1], rel=1e-12)
