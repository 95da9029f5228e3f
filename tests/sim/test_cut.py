"""Messages that are longer than their buffer, for receives with a status."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.named import network
from dml.types import ANY, TOO_LONG, BadInput, Status
from dml.wire.comm import Metered
from dml.wire.comm.event_log import Log
from dml.wire.comm.recorded import Recorded
from dml.wire.comm.traced import Traced

LINKS = (sim.Uniform(), sim.Uniform(eager=0), network("torus:2x1", 2))
every = pytest.mark.parametrize("links", LINKS)


def receive(comm, status, source):
    comm.Recv(np.zeros(2), source, ANY, status)


def wait(comm, status, source):
    comm.Irecv(np.zeros(2), source).Wait(status)


def poll(comm, status, source):
    request = comm.Irecv(np.zeros(2), source)
    while not request.Test(status):
        comm.platform.compute(1)


def wait_any(comm, status, source):
    comm.Waitany([comm.Irecv(np.zeros(2), source)], status)


CALLS = (receive, wait, poll, wait_any)


@every
@pytest.mark.parametrize("source", (0, ANY))
@pytest.mark.parametrize("call", CALLS)
def test_a_status_has_the_source_of_a_message_that_is_cut(call, source, links):
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.ones(3), 1, 5)
            comm.Send(np.ones(2), 1, 6)
            return None
        found = []
        for _ in range(2):
            status = Status()
            call(comm, status, source)
            found.append((status.source, status.tag, status.count))
        return found

    assert sim.run(program, 2, links)[1] == [(0, 5, TOO_LONG), (0, 6, 16)]


WRAPPERS = {
    "none": lambda comm: comm,
    "metered": Metered,
    "traced": Traced,
    "recorded": lambda comm: Recorded(comm, Log()),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("source", (0, ANY))
@pytest.mark.parametrize("call", CALLS)
def test_without_a_status_a_cut_message_raises_through_all_wrappers(
    call, source, wrapper
):
    def program(comm):
        comm = WRAPPERS[wrapper](comm)
        if comm.rank == 0:
            comm.Send(np.ones(3), 1, 5)
        else:
            call(comm, None, source)

    with pytest.raises(BadInput, match="truncated.*from rank 0.*pass a longer"):
        sim.run(program, 2)


def test_a_cut_message_raises_at_the_end_if_no_rank_waits_for_it():
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.ones(3), 1, 5)
        else:
            comm.Irecv(np.zeros(2), 0, 5)

    with pytest.raises(BadInput, match="message truncated"):
        sim.run(program, 2)
