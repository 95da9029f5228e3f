import pytest

from dml.types import Status
from dml.wire.comm import sleeping as napping
from dml.wire.comm.sleeping import Napping
from dml.wire.comm.wrapper import Wrapper


class Later:
    """A request that is done after so many tests."""

    def __init__(self, tests):
        self.left, self.tested = tests, 0

    def Test(self, status=None):
        self.tested += 1
        self.left -= 1
        if self.left < 0 and status is not None:
            status.source = 7
        return self.left < 0


class Fake:
    """A communicator whose messages come after so many looks."""

    rank, size, call = 0, 2, None
    platform = Reduce_local = Wtime = None

    def __init__(self, tests=3):
        self.tests, self.calls = tests, []
        self.probe = Later(tests)

    def Irecv(self, buf, source, tag):
        return Later(self.tests)

    def Isend(self, buf, dest, tag):
        return Later(self.tests)

    def Iprobe(self, source, tag, status=None):
        return self.probe.Test(status)


@pytest.fixture
def naps(monkeypatch):
    """Note what is slept, and let time pass by it alone."""
    found = []
    monkeypatch.setattr(napping.time, "sleep", found.append)
    monkeypatch.setattr(napping.time, "perf_counter", lambda: sum(found))
    return found


def test_each_call_that_waits_sleeps_until_it_is_done(naps):
    status = Status()
    for call in (
        lambda comm: comm.Send(b"", 1),
        lambda comm: comm.Recv(b"", 1, 2, status),
        lambda comm: comm.Probe(1, 2, status),
        lambda comm: comm.Irecv(b"", 1).Wait(status),
    ):
        naps.clear()
        call(Napping(Fake(3)))
        assert naps == [napping.LOOK] * 3
    assert status.source == 7


def test_nobody_sleeps_for_what_is_there(naps):
    comm = Napping(Fake(0))
    comm.Recv(b"", 1)
    comm.Probe()
    comm.Waitall([comm.Isend(b"", 1), comm.Irecv(b"", 1)])
    assert not naps


def test_naps_grow_with_what_was_waited_up_to_the_longest(naps):
    Napping(Fake(200), longest=0.001).Recv(b"", 1)
    assert naps[0] == napping.LOOK and naps[-1] == max(naps) == 0.001
    assert naps == sorted(naps)
    for k, nap in enumerate(naps):
        assert nap <= max(napping.LOOK, 0.1 * sum(naps[:k]))


def test_waiting_for_any_ends_one_request_only_and_forgets_who_is_over(naps):
    comm = Napping(Fake())
    requests = [comm.Irecv(b"", 1) for _ in range(3)]
    requests[0].request.left = 9
    assert comm.Waitany(requests) == 1
    assert [request.over for request in requests] == [False, True, False]
    assert comm.Waitany(requests) == 2
    assert comm.Waitany(requests) == 0
    assert comm.Waitany(requests) == -1
    tested = requests[1].request.tested
    assert requests[1].Test() and requests[1].request.tested == tested


def test_the_watchdog_sees_what_is_waited_for_through_every_wrapper(monkeypatch):
    world, seen = Fake(2), []
    monkeypatch.setattr(napping.time, "sleep", lambda _: seen.append(world.call))
    comm = Napping(Wrapper(Wrapper(world)))
    comm.Recv(b"abc", 1, 5)
    assert seen == [("Irecv", "source", 1, 5, b"abc")] * 2
    comm.Probe(1, 5)
    assert seen[-1] == ("Probe", "source", 1, 5, None)
    assert world.call is None
