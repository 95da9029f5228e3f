import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death
from dml.wire.comm import Traced
from dml.wire.comm.tags import Tag

FREE = sim.Uniform(0, 0, 0)
NOTHING = np.empty(0, np.uint8)


@pytest.mark.parametrize("wrap", (lambda comm: comm, Traced), ids=("plain", "traced"))
@pytest.mark.parametrize(
    "sent, alpha, expected",
    [
        (0.5, 0.0, (False, 0.5)),
        (0.5, 0.25, (False, 0.75)),
        # A word that comes at the end or later changes nothing.
        (2.0, 0.0, (True, 2.0)),
        (2.5, 0.0, (True, 2.0)),
        (1.9, 2.0 - 1.9, (True, 2.0)),
        (1.9, 0.6, (True, 2.0)),
    ],
)
def test_a_word_cuts_computing_off_when_it_comes(wrap, sent, alpha, expected):
    def program(comm):
        comm = wrap(comm)
        if comm.rank:
            comm.platform.compute(sent)
            return comm.Send(NOTHING, 0, Tag.LEAVE)
        leave = comm.Irecv(NOTHING, 1, Tag.LEAVE)
        passed = comm.platform.compute(2.0, leave), comm.Wtime()
        leave.Wait()
        return passed

    assert sim.run(program, 2, FREE._replace(alpha=alpha))[0] == expected


def test_a_word_that_waits_already_lets_nothing_begin():
    def program(comm):
        if comm.rank:
            return comm.Send(NOTHING, 0, Tag.LEAVE)
        comm.platform.compute(1.0)
        leave = comm.Irecv(NOTHING, 1, Tag.LEAVE)
        return comm.platform.compute(2.0, leave), comm.Wtime()

    assert sim.run(program, 2, FREE)[0] == (False, 1.0)


def test_a_rank_that_dies_while_it_computes_is_not_cut_off_any_more():
    def program(comm):
        leave = None if comm.rank else comm.Irecv(NOTHING, 1, Tag.LEAVE)
        return comm.platform.compute(3.0, leave)

    assert sim.run(program, 2, FREE, events=[Death(0, 1.0)]) == [None, True]
