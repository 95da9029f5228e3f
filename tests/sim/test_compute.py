import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death
from dml.wire.comm import Traced
from dml.wire.comm.tags import Tag

FREE = sim.Uniform(0, 0, 0)
NOTHING = np.empty(0, np.uint8)


def cut(work, sent, network=FREE, wrap=lambda comm: comm):
    """Rank 0 computes for 2 s, unless rank 1's word, sent at `sent`, comes before."""

    def program(comm):
        comm = wrap(comm)
        if comm.rank:
            comm.platform.compute(sent)
            comm.Send(NOTHING, 0, Tag.LEAVE)
            return None
        leave = comm.Irecv(NOTHING, 1, Tag.LEAVE)
        passed = work(comm, leave)
        when = comm.Wtime()
        leave.Wait()
        return passed, when

    return sim.run(program, 2, network)[0]


def at_once(comm, leave):
    return comm.platform.compute(2.0, leave)


def test_a_word_cuts_computing_off_when_it_comes():
    assert cut(at_once, sent=0.5) == (False, 0.5)
    assert cut(at_once, sent=0.5, network=FREE._replace(alpha=0.25)) == (False, 0.75)


@pytest.mark.parametrize("sent", (2.0, 2.5))
def test_a_word_that_comes_at_the_end_or_later_changes_nothing(sent):
    assert cut(at_once, sent) == (True, 2.0)
    assert cut(at_once, 1.9, FREE._replace(alpha=sent - 1.9)) == (True, 2.0)


def test_a_word_that_waits_already_lets_nothing_begin():
    def program(comm):
        if comm.rank:
            return comm.Send(NOTHING, 0, Tag.LEAVE)
        comm.platform.compute(1.0)
        return comm.platform.compute(
            2.0, comm.Irecv(NOTHING, 1, Tag.LEAVE)
        ), comm.Wtime()

    assert sim.run(program, 2, FREE)[0] == (False, 1.0)


def test_a_traced_rank_is_cut_off_alike():
    assert cut(lambda comm, leave: at_once(comm, leave), 0.5, wrap=Traced) == (
        False,
        0.5,
    )


def test_a_rank_that_dies_while_it_computes_is_not_cut_off_any_more():
    def program(comm):
        return at_once(comm, comm.Irecv(NOTHING, 1, Tag.LEAVE))

    def both(comm):
        return program(comm) if comm.rank == 0 else comm.platform.compute(3.0)

    assert sim.run(both, 2, FREE, events=[Death(0, 1.0)]) == [None, True]


def test_without_a_request_computing_takes_its_time():
    def program(comm):
        return comm.platform.compute(3.0), comm.Wtime()

    assert sim.run(program, 1) == [(True, 3.0)]
