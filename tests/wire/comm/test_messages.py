"""Arguments of messages: what mpi4py means by buffers, ranks, tags and colors."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.named import network
from dml.types import ANY, PROC_NULL, UNDEFINED, BadInput, Status
from dml.wire.comm.members import Members

MPI = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
FABRICS = pytest.mark.parametrize("links", (sim.Uniform(), network("torus:2x2", 4)))
GRID = np.arange(12.0).reshape(3, 4)


@FABRICS
@pytest.mark.parametrize("waits", (False, True))
@pytest.mark.parametrize("sent", (GRID, GRID.T, np.asfortranarray(GRID), GRID.ravel()))
def test_messages_go_from_memory_to_memory(links, waits, sent):
    def program(comm):
        into = np.zeros((3, 4), order="F")
        if comm.rank == 1:
            comm.platform.compute(waits)
            comm.Send(sent, 0, 0)
        elif comm.rank == 0:
            comm.platform.compute(not waits)
            comm.Recv(into, 1, 0)
        return into.ravel("K").tolist()

    assert sim.run(program, 4, links)[0] == sent.ravel("K").tolist()


@FABRICS
@pytest.mark.parametrize("null", (PROC_NULL, MPI.PROC_NULL))
def test_an_exchange_with_no_rank_at_the_ends_does_not_wrap(links, null):
    def program(comm):
        left, right = comm.rank - 1, comm.rank + 1
        right = right if right < comm.size else null
        left = left if left >= 0 else null
        into, status = np.array([-1.0]), Status()
        comm.Sendrecv(np.array([comm.rank * 1.0]), right, 5, into, left, 5, status)
        return into.tolist(), status.source, status.tag, status.count

    others = [([rank - 1.0], rank - 1, 5, 8) for rank in range(1, 4)]
    assert sim.run(program, 4, links) == [([-1.0], PROC_NULL, ANY, 0), *others]


@FABRICS
def test_constants_of_mpi4py_keep_their_meaning(links):
    def program(comm):
        into, status = np.zeros(1), Status()
        if comm.rank == 1:
            comm.Send([np.ones(1), MPI.DOUBLE], 0, 7)
        elif comm.rank == 0:
            comm.Recv([into, 1, MPI.DOUBLE], MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        made = comm.Split(MPI.UNDEFINED if comm.rank else 0)
        return into.tolist(), status.source, made == MPI.COMM_NULL, bool(made)

    found = sim.run(program, 4, links)
    assert found[0] == ([1.0], 1, False, True)
    assert [each[2:] for each in found[1:]] == [(True, False)] * 3
    assert MPI.UNDEFINED == UNDEFINED


def refused(call):
    with pytest.raises(BadInput, match="^expected .*, got .*; pass ") as caught:
        call()
    return str(caught.value)


@FABRICS
def test_invalid_arguments_are_refused_by_every_call(links):
    good = np.zeros(4)
    buffers = [good[::2], good[::-1], GRID[:, :2], np.array([None]), "text", 3]
    buffers += [[good, MPI.INT], [good, 5, MPI.DOUBLE], [good]]

    def program(comm):
        for call in (comm.Send, comm.Isend, comm.Recv, comm.Irecv):
            for buffer in buffers:
                refused(lambda: call(buffer, 0, 0))  # noqa: B023
            for rank in (-1 - 6, 4, None, 1.5):
                refused(lambda: call(good, rank, 0))  # noqa: B023
            for tag in (-5, 2**31, None, 1.5):
                refused(lambda: call(good, 0, tag))  # noqa: B023
        for read_only in (np.broadcast_to(0.0, 1), b"bytes"):
            refused(lambda: comm.Recv(read_only, 0, 0))  # noqa: B023
            refused(lambda: comm.Sendrecv(good, 0, 0, read_only, 0, 0))  # noqa: B023
        for color in (-5, None, 1.5):
            refused(lambda: comm.Split(color))  # noqa: B023

    sim.run(program, 4, links)


@FABRICS
def test_a_message_that_is_too_long_is_refused_by_its_receiver(links):
    def program(comm):
        if comm.rank == 1:
            comm.Send(np.zeros(3), 0, 0)
        elif comm.rank == 0:
            with pytest.raises(BadInput, match="truncated.*longer one from rank 1"):
                comm.Recv(np.zeros(2), 1, 0)
            return "refused"

    assert sim.run(program, 4, links) == ["refused", None, None, None]


@FABRICS
@pytest.mark.parametrize("new_status", (Status, MPI.Status))
def test_a_status_has_the_source_in_a_group_of_members(links, new_status):
    def receive(comm, call, into, status):
        request = (
            comm.Irecv(into, 1, 5) if call in ("Wait", "Test", "Waitany") else None
        )
        if call in ("Wait", "Test"):
            while not getattr(request, call)(status):
                comm.platform.compute(1.0, request)
        elif call == "Waitany":
            assert comm.Waitany([request], status) == 0
        elif call == "Sendrecv":
            comm.Sendrecv(into, PROC_NULL, 0, into, 1, 5, status)
        else:
            while (
                getattr(comm, call)(*[into] * (call == "Recv"), 1, 5, status) is False
            ):
                comm.platform.compute(1.0)
            if call != "Recv":
                comm.Recv(into, 1, 5)

    calls = ("Recv", "Sendrecv", "Probe", "Iprobe", "Wait", "Test", "Waitany")

    def program(comm):
        if comm.rank in (0, 1):
            return None
        group, found = Members(comm, [3, 2]), []
        for number, call in enumerate(calls):
            if comm.rank == 2:
                group.Send(np.full(2, float(number)), 0, 5)
            else:
                status, into = new_status(), np.zeros(2)
                receive(group, call, into, status)
                found.append((status.source, status.tag, status.count, into[0]))
        return found

    expected = [(1, 5, 16, number) for number in range(len(calls))]
    assert sim.run(program, 4, links)[3] == expected


def test_other_objects_than_a_status_are_refused_in_one_line():
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(3), 1, 7)
        else:
            refused(lambda: comm.Recv(np.zeros(4), 0, 7, [0]))

    sim.run(program, 2)
