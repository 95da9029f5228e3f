"""Traces of ranks agree with each other, and tracing changes no result."""

import numpy as np
import pytest

from dml import sim
from dml.types import ANY, Interval, Status
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered, Traced
from dml.wire.comm.rank_trace import clock_origins
from dml.wire.comm.traced import BARRIERS
from dml.wire.comm.wrapper import Wrapper

ALPHA, BETA = 1e-6, 1e-9
NETWORK = sim.Uniform(alpha=ALPHA, beta=BETA, gamma=1e-10)


def traced(program, size, **options):
    """Run program(comm) traced on virtual ranks; return the timeline of all."""

    def whole(comm):
        comm = Traced(comm)
        comm.align()
        comm.begin()
        program(comm)
        comm.end()
        return comm.timeline()

    first, *others = sim.run(whole, size, network=NETWORK, **options)
    assert others == [None] * (size - 1)
    return first


def messages(timeline):
    return [(f.source, f.dest, f.tag, f.nbytes) for f in timeline.messages]


def some(length):
    return np.zeros(length, np.uint8)


@pytest.mark.parametrize("size", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("name", sorted(ALLREDUCE))
def test_every_message_of_every_allreduce_is_one_flight_of_its_bytes(name, size):
    def program(comm):
        metered = Metered(Traced(comm))
        buffer = np.arange(1000.0) + comm.rank
        ALLREDUCE[name](metered, buffer.copy())  # which sets up groups and windows
        counts = metered.messages_sent, metered.bytes_sent
        metered.begin()
        ALLREDUCE[name](metered, buffer)
        metered.end()
        sent = metered.messages_sent - counts[0], metered.bytes_sent - counts[1]
        return metered.timeline(), sent, buffer.sum()

    found = sim.run(program, size, network=NETWORK)
    timeline = found[0][0]
    assert len({total for *_, total in found}) == 1
    for rank, (_, sent, _) in enumerate(found):
        mine = [f.nbytes for f in timeline.messages if f.source == rank]
        assert (len(mine), sum(mine)) == sent
    for message in timeline.messages:
        least = ALPHA + BETA * message.nbytes
        assert message.received - message.sent >= least * (1 - 1e-9)
    assert all(interval.end >= interval.start for interval in timeline.intervals)
    if size > 1:
        assert {interval.rank for interval in timeline.intervals} == set(range(size))


@pytest.mark.parametrize(
    "make, pairs",
    (
        (lambda comm: comm.Split(comm.rank // 2), ((0, 1), (2, 3))),
        (lambda comm: comm.Split(comm.rank // 2, -comm.rank), ((1, 0), (3, 2))),
        (lambda comm: comm.Split_type(), ((0, 1), (2, 3))),
        (lambda comm: comm.Split(comm.rank // 2).Dup(), ((0, 1), (2, 3))),
    ),
    ids=("Split", "reversed Split", "Split_type", "Dup"),
)
def test_groups_with_equal_members_are_distinguished_and_so_are_those_made_at_once(
    make, pairs
):
    """Same ranks, same tag, received in the other order: only the group differs."""

    def whole(comm):
        traced_comm = Traced(comm)
        one, other = make(traced_comm), make(traced_comm)
        traced_comm.begin()
        if one.rank == 0:
            one.Send(some(10), 1, 7)
            other.Send(some(20), 1, 7)
        else:
            other.Recv(some(20), 0, 7)
            traced_comm.platform.compute(1.0)
            one.Recv(some(10), 0, 7)
        return traced_comm.timeline()

    found = sim.run(whole, 4, sim.Uniform(host=2))[0].messages
    assert {(f.source, f.dest, f.nbytes, f.received > 1) for f in found} == {
        (*pair, *message) for pair in pairs for message in ((10, True), (20, False))
    }


@pytest.mark.parametrize("how", ("ended", "never waited for"))
def test_a_message_whose_coming_nobody_notes_is_no_flight(how):
    def program(comm):
        if comm.rank == 0:
            comm.Send(some(1), 1, 4)
            comm.Send(some(1), 1, 5)
        else:
            comm.Recv(some(1), 0, 4)
            if how == "ended":
                comm.end()
                comm.Recv(some(1), 0, 5)
            else:
                comm.Irecv(some(1), 0, 5)

    assert messages(traced(program, 2)) == [(0, 1, 4, 1)]


def test_receives_are_filled_as_posted_whatever_is_waited_for_first():
    def program(comm):
        if comm.rank == 0:
            comm.Send(some(1), 1, 4)
            comm.platform.compute(1.0)
            comm.Isend(some(2), 1, 4).Wait()
        else:
            requests = [comm.Irecv(some(2), 0, 4) for _ in range(2)]
            requests[1].Wait()
            comm.platform.compute(1.0)
            requests[0].Wait()

    one, two = traced(program, 2).messages
    assert (one.nbytes, two.nbytes) == (1, 2)
    assert two.received == pytest.approx(1.0, rel=1e-3)
    assert one.received == pytest.approx(2.0, rel=1e-3)


def by_probe(comm, tag):
    status = Status()
    comm.Probe(ANY, ANY, status)
    comm.Recv(some(1), status.Get_source(), status.Get_tag())


def by_test(comm, tag):
    request = comm.Irecv(some(1), ANY, ANY)
    while not request.Test():
        pass


def by_waitany(comm, tag):
    late = comm.Irecv(some(1), 0, 99)
    assert comm.Waitany([late, comm.Irecv(some(1), ANY, ANY)]) == 1


def by_sendrecv(comm, tag):
    comm.Sendrecv(some(1), 0, 99, some(1), ANY, tag)
    comm.Recv(some(1), 0, 99)


RECEIVES = {
    "Recv": lambda comm, tag: comm.Recv(some(1), ANY, ANY),
    "Wait": lambda comm, tag: comm.Irecv(some(1), ANY, ANY).Wait(),
    "Waitall": lambda comm, tag: comm.Waitall([comm.Irecv(some(1), ANY, ANY)]),
    "Probe": by_probe,
    "Test": by_test,
    "Waitany": by_waitany,
    "Sendrecv": by_sendrecv,
}


@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_who_receives_from_anyone_notes_who_it_was(receive):
    def program(comm):
        if comm.rank == 0:
            receive(comm, 12)
            receive(comm, 11)
        else:
            comm.platform.compute(3.0 - comm.rank)
            comm.Send(some(1), 0, 10 + comm.rank)

    timeline = traced(program, 3)
    assert [f[:3] for f in messages(timeline) if f[2] != 99] == [(2, 0, 12), (1, 0, 11)]
    assert [round(f.received) for f in timeline.messages if f.tag != 99] == [1, 2]


def test_calls_that_wait_are_intervals_of_their_names():
    def program(comm):
        comm.platform.compute(float(comm.rank))
        comm.Barrier()
        comm.Allreduce(None, np.ones(1), np.add)
        comm.platform.shared_window(8).barrier(comm.platform.pause)
        comm.add_interval("update", 0.25, 0.5)
        if comm.rank == 0:
            comm.Probe(1, 0)
            requests = [comm.Irecv(some(1), 1, tag) for tag in range(3)]
            comm.Waitany(requests)
            comm.Waitall(requests[1:])
        else:
            for tag in range(3):
                comm.platform.compute(1.0)
                comm.Send(some(1), 0, tag)

    intervals = traced(program, 2).intervals
    first = [interval for interval in intervals if interval.rank == 0]
    assert [interval.name for interval in first] == [
        *("Barrier", "update", "Allreduce", "shared_window", "window barrier"),
        *("Probe", "Waitany", "Waitall"),
    ]
    assert (first[0].start, first[0].end) == (0, pytest.approx(1.0, rel=1e-3))
    assert first[-1].end == pytest.approx(4.0, rel=1e-3)
    assert Interval(1, "update", 0.25, 0.5) in intervals


def test_real_clocks_are_compared_when_a_rank_leaves_each_barrier():
    def program(comm):
        real = Wrapper(comm)
        real.platform = comm.platform._replace(network=None)
        traced_comm = Traced(real)
        traced_comm.align()
        times = traced_comm.trace.barrier_times
        assert times == sorted({*times}) and times[-1] == comm.Wtime() > times[0] > 0
        return len(times)

    assert sim.run(program, 3) == [BARRIERS] * 3


def test_what_is_off_calls_the_wrapped_communicator_itself_and_notes_nothing():
    def program(comm):
        outer = Traced(comm)
        inner = outer.Dup()
        for one in (outer, inner):
            assert one.Sendrecv == one.comm.Sendrecv
        outer.begin()
        for one in (outer, inner, outer.Dup()):
            assert one.Sendrecv != one.comm.Sendrecv
        inner.end()
        assert outer.Sendrecv == comm.Sendrecv
        outer.add_interval("update", 0.0, 1.0)
        inner.Barrier()
        return outer.timeline()

    timeline = sim.run(program, 1)[0]
    assert [interval.name for interval in timeline.intervals] == ["Dup"]


def test_a_request_under_way_when_tracing_ends_is_waited_for():
    def program(comm):
        comm = Traced(comm)
        comm.begin()
        requests = [comm.Irecv(some(1), comm.rank, k) for k in range(3)]
        for k in range(3):
            comm.Isend(some(1), comm.rank, k)
        comm.end()
        assert comm.Waitany(requests[:1]) == 0
        comm.Waitall(requests[1:])
        return comm.timeline()

    timeline = sim.run(program, 1)[0]
    assert messages(timeline) == [(0, 0, k, 1) for k in range(3)]
    assert timeline.intervals == []


@pytest.mark.parametrize("limits", [(3,), (1, 2)])
def test_a_limit_counts_intervals_from_when_tracing_begins(limits):
    def program(comm):
        comm = Traced(comm)
        for limit in limits:
            comm.begin(limit=limit)
            for _ in range(5):
                comm.Barrier()
            assert not comm.trace.on
        return comm.timeline()

    assert len(sim.run(program, 2)[0].intervals) == 6


def test_hosts_whose_clocks_differ_have_the_times_of_equal_clocks():
    def story(skew):
        def program(comm):
            traced_comm, ahead = Traced(comm), skew * comm.rank
            traced_comm.Wtime = lambda: comm.Wtime() + ahead
            traced_comm.trace.barrier_times = [ahead] * 3
            traced_comm.begin()
            traced_comm.platform.compute(1e-3 * (3 - comm.rank))
            ALLREDUCE["ring"](traced_comm, np.ones(100))
            return traced_comm.timeline()

        return sim.run(program, 3, sim.Uniform(host=1))[0]

    for pair in zip(story(0.0), story(1024.0), strict=True):
        one, other = (sorted(found, key=lambda each: each[:2]) for found in pair)
        assert [each[:2] for each in one] == [each[:2] for each in other]
        times, skewed = ([each[-2:] for each in found] for found in (one, other))
        assert np.allclose(times, skewed, rtol=0, atol=1e-9)


def test_hosts_clocks_are_aligned_by_the_first_to_leave_each_barrier():
    """Three barriers on two hosts, whose clocks are 1000 s apart; ranks leave late."""
    true = np.array([1.0, 2.0, 3.0])
    late = np.array(
        [[0.0, 0.2, 0.0], [0.1, 0.0, 0.3], [0.4, 0.9, 0.0], [0.0, 0.8, 0.7]]
    )
    clocks = np.array([0.0, 0.0, 1000.0, 1000.0])
    met = true + late + clocks[:, None]
    assert clock_origins(met, [0, 0, 1, 1]) == pytest.approx([3.0, 3.0, 1003.0, 1003.0])
    assert clock_origins(met[:2], [0, 0]) == pytest.approx([3.0, 3.0])
