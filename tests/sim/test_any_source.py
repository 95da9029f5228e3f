"""Receives from anyone: who was first in virtual time, whatever ran first."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Slow
from dml.types import ANY, SHARED, BadInput, Status
from dml.wire.comm.tags import Tag

ALPHA, BETA = 1e-3, 1e-6
NOTHING = Slow(frozenset([0]), frozenset([0]), factor=1.0)
FABRICS = pytest.mark.parametrize("events", ((), (NOTHING,)), ids=("free", "routed"))
SEEDS = pytest.mark.parametrize("seed", (0, 1, 2))
WORD = np.zeros(1)


def run(program, size, eager=65536, **options):
    return sim.run(program, size, sim.Uniform(ALPHA, BETA, 0, eager), **options)


def took(nbytes=8):
    return ALPHA + BETA * nbytes


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def received(comm, count):
    """Receive from anyone; list who sent what, and when it was there."""
    status, found = Status(), []
    for _ in range(count):
        comm.Recv(np.zeros(1), ANY, ANY, status)
        found.append((status.source, status.tag, comm.Wtime()))
    return found


@FABRICS
@SEEDS
@pytest.mark.parametrize("eager", (0, 65536))
def test_who_sends_first_in_virtual_time_is_received_first(events, seed, eager):
    delays = {1: 0.3, 2: 0.1, 3: 0.4, 4: 0.2}

    def program(comm):
        if comm.rank == 0:
            return received(comm, 4)
        comm.platform.compute(delays[comm.rank])
        comm.Send(WORD, 0, comm.rank * 10)

    found = run(program, 5, eager, events=events, seed=seed)[0]
    assert [source for source, _, _ in found] == [2, 4, 1, 3]
    assert [tag for _, tag, _ in found] == [20, 40, 10, 30]
    assert [when for *_, when in found] == [
        exactly(d + took()) for d in (0.1, 0.2, 0.3, 0.4)
    ]


@FABRICS
def test_a_chain_of_causes_comes_before_what_merely_ran_first(events):
    """Rank 3's message of 1 s is in the inbox long before rank 2's of 0.5 s is sent."""

    def program(comm):
        if comm.rank == 0:
            return [source for source, *_ in received(comm, 2)]
        if comm.rank == 1:
            comm.platform.compute(0.5)
            comm.Send(WORD, 2)
        if comm.rank == 2:
            comm.Recv(np.zeros(1), ANY)
            comm.Send(WORD, 0)
        if comm.rank == 3:
            comm.platform.compute(1)
            comm.Send(WORD, 0)

    assert run(program, 4, events=events)[0] == [2, 3]


@FABRICS
def test_messages_of_one_moment_come_by_rank(events):
    def program(comm):
        if comm.rank == 0:
            return [source for source, *_ in received(comm, 6)]
        comm.Send(WORD, 0)

    for seed in (0, 1, 2):
        assert run(program, 7, seed=seed, events=events)[0] == [1, 2, 3, 4, 5, 6]


@FABRICS
@pytest.mark.parametrize("eager", (0, 8, 65536))
def test_messages_of_one_pair_never_overtake_each_other(events, eager):
    def program(comm):
        if comm.rank == 0:
            status, lengths = Status(), []
            comm.platform.compute(0.5)
            for _ in range(6):
                comm.Recv(np.zeros(9), ANY, 3, status)
                lengths.append(status.count)
            return lengths
        requests = [comm.Isend(np.zeros(n), 0, 3) for n in (1, 5, 1, 9, 2, 1)]
        comm.Waitall(requests)

    assert run(program, 2, eager, events=events)[0] == [8, 40, 8, 72, 16, 8]


@FABRICS
def test_tags_and_sources_choose_among_those_that_wait(events):
    def program(comm):
        if comm.rank == 0:
            comm.platform.compute(1)
            status, found = Status(), []
            for source, tag in ((ANY, 7), (2, ANY), (ANY, ANY), (1, 5)):
                comm.Recv(np.zeros(1), source, tag, status)
                found.append((status.source, status.tag))
            return found
        comm.platform.compute(comm.rank * 0.1)
        comm.Send(WORD, 0, 5)
        comm.Send(WORD, 0, 7)

    expected = [(1, 7), (2, 5), (1, 5), (2, 7)]

    def last(comm):
        found = program(comm)
        return found

    with pytest.raises(sim.Deadlock, match=r"Recv\(source=1, tag=5|Irecv\(source=1"):
        run(last, 3, events=events)

    def three(comm):
        if comm.rank:
            return program(comm)
        comm.platform.compute(1)
        status, found = Status(), []
        for source, tag in ((ANY, 7), (2, ANY), (ANY, ANY), (ANY, 7)):
            comm.Recv(np.zeros(1), source, tag, status)
            found.append((status.source, status.tag))
        return found

    assert run(three, 3, events=events)[0] == expected


@FABRICS
def test_the_receive_that_was_posted_first_takes_the_message(events):
    def program(comm):
        if comm.rank == 0:
            anyone, named = np.zeros(1), np.zeros(1)
            first, second = comm.Irecv(anyone, ANY), comm.Irecv(named, 1)
            comm.Waitall([first, second])
            return anyone[0], named[0]
        comm.Send(np.array([1.0]), 0)
        comm.Send(np.array([2.0]), 0)

    assert run(program, 2, events=events)[0] == (1, 2)


@FABRICS
def test_receives_before_and_after_the_first_from_anyone_all_find_theirs(events):
    def program(comm):
        if comm.rank == 0:
            named = comm.Irecv(one := np.zeros(1), 1, 1)
            comm.platform.compute(0.5)
            comm.Recv(two := np.zeros(1), ANY, 2)
            comm.Recv(three := np.zeros(1), 1, 3)
            named.Wait()
            return one[0], two[0], three[0]
        for tag in (3, 2, 1):
            comm.Send(np.array([tag * 1.0]), 0, tag)

    assert run(program, 2, events=events)[0] == (1, 2, 3)


@FABRICS
@pytest.mark.parametrize("eager", (0, 65536))
def test_a_probe_sees_a_message_alpha_after_it_was_sent_and_takes_nothing(
    events, eager
):
    def program(comm):
        if comm.rank == 0:
            status = Status()
            comm.Probe(ANY, ANY, status)
            seen = status.Get_source(), status.Get_tag(), status.Get_count()
            when = comm.Wtime()
            comm.Recv(np.zeros(3), status.source, status.tag)
            return seen, when
        comm.platform.compute(0.2 * comm.rank)
        comm.Send(np.zeros(3), 0, 6)
        if comm.rank == 1:
            comm.Recv(np.zeros(1), 2)
        else:
            comm.Send(WORD, 1)

    def both(comm):
        found = program(comm)
        if comm.rank == 0:
            comm.Recv(np.zeros(3), 2, 6)
        return found

    (seen, when), *_ = run(both, 3, eager, events=events)
    assert seen == (1, 6, 24)
    assert when == exactly(0.2 + ALPHA)


@FABRICS
def test_a_probe_waits_for_its_tag_and_iprobe_counts_bytes(events):
    def program(comm):
        if comm.rank == 0:
            status = Status()
            comm.Probe(ANY, 5, status)
            seen = [(status.source, status.tag, status.count, comm.Wtime())]
            assert comm.Iprobe(ANY, 6, status)
            seen.append((status.source, status.tag, status.count, 0.0))
            comm.Recv(np.zeros(2), 1, 6)
            comm.Recv(np.zeros(3), 1, 5)
            return seen
        for tag in (6, 5):
            comm.platform.compute(0.1)
            comm.Send(np.zeros(8 - tag), 0, tag)

    sent = exactly(0.2 + took(16) + ALPHA)
    assert run(program, 2, events=events)[0] == [(1, 5, 24, sent), (1, 6, 16, 0.0)]


@FABRICS
@pytest.mark.parametrize("nap", (0.0, 1e-3))
def test_iprobe_turns_true_when_the_message_can_be_seen_and_not_before(events, nap):
    def program(comm):
        if comm.rank == 0:
            status = Status()
            while not comm.Iprobe(ANY, 4, status):
                comm.platform.compute(nap) if nap else None
            when = comm.Wtime()
            comm.Recv(np.zeros(1), status.source, 4)
            return status.source, when
        comm.platform.compute(0.1)
        comm.Send(WORD, 0, 4)

    source, when = run(program, 2, events=events)[0]
    assert source == 1
    assert 0.1 + ALPHA <= when <= 0.1 + ALPHA + nap + 1e-9


@FABRICS
def test_a_test_between_computations_sees_what_has_happened_by_then(events):
    """Rank 0 polls every millisecond; the answer comes after a server's detour."""

    def program(comm):
        if comm.rank == 0:
            request = comm.Irecv(np.zeros(1), 1)
            polls = 0
            while not request.Test():
                comm.platform.compute(1e-3)
                polls += 1
            return polls
        if comm.rank == 1:
            comm.Recv(np.zeros(1), ANY)
            comm.Send(WORD, 0)
        if comm.rank == 2:
            comm.platform.compute(0.05)
            comm.Send(WORD, 1)

    assert run(program, 3, events=events)[0] == int((0.05 + 2 * took()) / 1e-3) + 1


@FABRICS
def test_waitany_names_the_request_that_is_done_first_then_the_others(events):
    delays = {1: 0.3, 2: 0.1, 3: 0.2}

    def program(comm):
        if comm.rank == 0:
            status = Status()
            requests = [comm.Irecv(np.zeros(1), source) for source in (1, 2, 3)]
            found = []
            while (place := comm.Waitany(requests, status)) >= 0:
                found.append((place, status.source, comm.Wtime()))
            return found
        comm.platform.compute(delays[comm.rank])
        comm.Send(WORD, 0)

    found = run(program, 4, events=events)[0]
    assert [(place, source) for place, source, _ in found] == [(1, 2), (2, 3), (0, 1)]
    assert [when for *_, when in found] == [
        exactly(d + took()) for d in (0.1, 0.2, 0.3)
    ]


def test_waitany_waits_for_what_an_unmatched_request_may_still_bring():
    """Rank 3's answer is known at once, of 1 s; rank 2's is earlier."""

    def program(comm):
        if comm.rank == 0:
            late, early = comm.Irecv(np.zeros(1), 3), comm.Irecv(np.zeros(1), 2)
            return comm.Waitany([late, early]), comm.Waitany([late, early])
        if comm.rank == 3:
            comm.platform.compute(1)
            comm.Send(WORD, 0)
        if comm.rank == 1:
            comm.Send(WORD, 2)
        if comm.rank == 2:
            comm.Recv(np.zeros(1), ANY)
            comm.Send(WORD, 0)

    assert run(program, 4)[0] == (1, 0)


def test_a_server_of_two_thousand_workers_serves_each_by_time():
    size = 2001

    def program(comm):
        if comm.rank == 0:
            return [source for source, *_ in received(comm, 2 * (size - 1))]
        for _ in range(2):
            comm.platform.compute((comm.rank * 7919 % 2003 + 1) * 0.1)
            comm.Send(WORD, 0)

    found = run(program, size)[0]
    sent = sorted(
        (k * (r * 7919 % 2003 + 1) * 0.1 + (k - 1) * took(), r)
        for r in range(1, size)
        for k in (1, 2)
    )
    assert found == [rank for _, rank in sent]


def test_deadlocks_name_receives_from_anyone_and_lost_messages():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(np.zeros(1), ANY, Tag.RING)
        else:
            comm.Send(WORD, 0, Tag.TREE)

    with pytest.raises(sim.Deadlock) as caught:
        run(program, 2)
    text = str(caught.value)
    assert "rank 0 at 0.000000000 s: Recv(source=ANY, tag=RING, 8 bytes)" in text
    assert "not received: 8 bytes, tag=TREE, from rank 1 to rank 0" in text


@FABRICS
@pytest.mark.parametrize("anyone", (False, True))
def test_a_message_that_nobody_receives_is_lost_and_told(events, anyone):
    def program(comm):
        if comm.rank == 1:
            comm.Send(WORD, 0, Tag.STAR)
        elif anyone:
            comm.Iprobe(ANY, 3)

    with pytest.raises(sim.Deadlock, match="1 messages are lost.*\n.*tag=STAR"):
        run(program, 2, events=events)


def test_a_virtual_host_has_a_communicator_of_its_own():
    def program(comm):
        host = comm.Split_type(SHARED)
        window = host.platform.shared_window(8)
        window.parts[host.rank][:] = comm.rank + 1
        host.Barrier()
        return host.size, host.rank, [int(part[0]) for part in window.parts]

    found = sim.run(program, 5, sim.Uniform(host=2))
    assert found == [
        *[(2, 0, [1, 2]), (2, 1, [1, 2]), (2, 0, [3, 4]), (2, 1, [3, 4])],
        (1, 0, [5]),
    ]
    with pytest.raises(BadInput, match="SHARED"):
        sim.run(lambda comm: comm.Split_type(99), 1)
