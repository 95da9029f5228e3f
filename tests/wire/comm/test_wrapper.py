"""Delegation, caches and sleeping of the wrappers of communicators."""

import inspect

import numpy as np
import pytest

from dml import sim
from dml.sim.comm import VirtualComm
from dml.sim.delays import delay_distribution, seconds, step_seconds
from dml.types import Comm, Status
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm import (
    Delayed,
    Log,
    Metered,
    Recorded,
    Throttled,
    Traced,
    sleeping,
)
from dml.wire.comm.buffers import allocate, registered_views
from dml.wire.comm.sleeping import Sleeping
from dml.wire.comm.wrapper import Wrapper

WRAPPERS = {
    "wrapper": Wrapper,
    "metered": Metered,
    "traced": Traced,
    "recorded": lambda comm: Recorded(comm, Log()),
    "delayed": lambda comm: Delayed(comm, iter([])),
    "sleeping": Sleeping,
    "throttled": lambda comm: Throttled(comm, 1e-9),
}
LATE = delay_distribution("shifted_exponential:1,2*1,4")


class CallList:
    """A communicator that records the calls of its operations."""

    rank, size, platform = 0, 1, None

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **named: self.calls.append((name, args, named))


class Plain(Wrapper):
    def wrap(self, comm):
        return comm


def test_a_wrapper_passes_on_every_operation_with_all_arguments_and_defaults():
    comm, expected = CallList(), []
    for name, operation in vars(Comm).items():
        if name[0].isupper():
            parameters = inspect.signature(operation).parameters
            own = inspect.signature(getattr(Plain, name, operation)).parameters
            assert [one.default for one in own.values()] == [
                one.default for one in parameters.values()
            ], name
            getattr(Plain(comm), name)(*list(parameters)[1:])
            expected.append((name, tuple(parameters)[1:], {}))
    assert comm.calls == expected and len(expected) > 15


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_is_split_from_a_wrapper_is_wrapped_alike(wrap):
    def program(comm):
        outer = wrap(comm)
        for inner in (outer.Split(0, 0), outer.Split_type(), outer.Dup()):
            assert type(inner) is type(outer)
            assert isinstance(inner.comm, VirtualComm)
            assert inner.cache is inner.cache is not outer.cache is not comm.cache
            assert inner.platform.virtual and inner.platform.raw is inner.comm

    sim.run(program, 2)


def test_an_allreduce_in_the_background_reduces_registered_memory_where_it_is():
    def program(comm):
        buffer = allocate(comm, 3)
        for _ in range(2):
            handle = allreduce_async(comm, buffer, allreduce=ALLREDUCE["shared"])
            handle.wait()
            assert handle.comm is comm.cache.yielding
            inner, outer = handle.comm, comm
            views = [registered_views(one, buffer)[0] for one in (inner, outer)]
            assert views[0] is views[1]

    sim.run(program, 2)


def test_work_takes_its_share_of_a_rank_s_own_draws_and_no_time_without_delays():
    def program(comm):
        delayed = Delayed(Metered(comm), step_seconds(LATE, 7, comm.rank), 3.0)
        outer = Traced(delayed.Dup())  # the copy goes on with the same draws
        times = [comm.Wtime()]
        for one, share in ((delayed, 1.0), (outer, 1.0), (outer, 0), (delayed, 0.5)):
            one.platform.work(share)
            times.append(comm.Wtime())
        Metered(comm).platform.work(1.0)
        assert comm.Wtime() == times[-1]
        return np.diff(times)

    drawn = 3 * seconds(LATE, 7, steps=3, size=3).T
    found = np.array(sim.run(program, 3, sim.Uniform(0, 0, 0)))
    assert found[:, 2].tolist() == [0.0] * 3
    want = drawn * [1, 1, 0.5]
    assert found[:, [0, 1, 3]] == pytest.approx(want, rel=1e-12)


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
    """Record the seconds of each sleep; the clock is their sum."""
    found = []
    monkeypatch.setattr(sleeping.time, "sleep", found.append)
    monkeypatch.setattr(sleeping.time, "perf_counter", lambda: sum(found))
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
        call(Sleeping(Fake(3)))
        assert naps == [sleeping.POLL_SECONDS] * 3
    assert status.source == 7


def test_nobody_sleeps_for_what_is_there(naps):
    comm = Sleeping(Fake(0))
    comm.Recv(b"", 1)
    comm.Probe()
    comm.Waitall([comm.Isend(b"", 1), comm.Irecv(b"", 1)])
    assert not naps


def test_naps_grow_with_what_was_waited_up_to_the_longest(naps):
    Sleeping(Fake(200), longest=0.001).Recv(b"", 1)
    assert naps[0] == sleeping.POLL_SECONDS and naps[-1] == max(naps) == 0.001
    assert naps == sorted(naps)
    for k, nap in enumerate(naps):
        assert nap <= max(sleeping.POLL_SECONDS, 0.1 * sum(naps[:k]))


def test_waiting_for_any_ends_one_request_only_and_forgets_who_is_over(naps):
    comm = Sleeping(Fake())
    requests = [comm.Irecv(b"", 1) for _ in range(3)]
    requests[0].request.left = 9
    assert comm.Waitany(requests) == 1
    assert [request.complete for request in requests] == [False, True, False]
    assert comm.Waitany(requests) == 2
    assert comm.Waitany(requests) == 0
    assert comm.Waitany(requests) == -1
    tested = requests[1].request.tested
    assert requests[1].Test() and requests[1].request.tested == tested


def test_the_watchdog_reports_the_waiting_call_through_every_wrapper(monkeypatch):
    world, seen = Fake(2), []
    monkeypatch.setattr(sleeping.time, "sleep", lambda _: seen.append(world.call))
    comm = Sleeping(Wrapper(Wrapper(world)))
    comm.Recv(b"abc", 1, 5)
    assert seen == [("Irecv", "source", 1, 5, b"abc")] * 2
    comm.Probe(1, 5)
    assert seen[-1] == ("Probe", "source", 1, 5, None)
    assert world.call is None
