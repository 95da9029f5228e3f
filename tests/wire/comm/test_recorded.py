"""Recorded runs are replayed, bit-identical, on other networks and at other speeds."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import ANY, BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Log, Metered, Recorded, Traced
from dml.wire.comm.events import Kind, decode
from tests.sim import test_agreement
from tests.sim.play import NOTHING
from tests.sim.test_agreement import EVEN, ODD, outcome, programs
from tests.wire.comm.replays import bare, kinds, on, recorded, replayed
from tests.wire.server.serving import serve

SCHEDULES = [  # network, events, seed of the speeds of the ranks
    ((ODD, EVEN)[k % 2], ((), NOTHING)[k // 2 % 2], k) for k in range(10)
]
OTHERS = [SCHEDULES[(7 * k + 3) % 10] for k in range(10)]


def metered(comm):
    comm = Metered(Traced(comm))
    comm.begin()
    return comm


def played(scripts, schedule, wrap):
    """Return the observations of each rank under a schedule, without times."""
    network, events, seed = schedule
    units = network.alpha * np.random.default_rng(seed).uniform(0.1, 5, len(scripts))

    def program(comm):
        player = test_agreement.Player(comm, scripts, wrap, units[comm.rank])
        return [each[:-1] for each in player.seen]

    try:
        return sim.run(
            program, len(scripts), network, events=events, limits=test_agreement.RULES
        )
    except sim.Deadlock:
        return None


def serving(schedule, wrap, size=4):
    network, events, seed = schedule

    def program(comm):
        rng = np.random.default_rng([seed, comm.rank])
        return serve(wrap(comm), lambda: network.alpha * rng.uniform(0.1, 5))

    return sim.run(program, size, network, events=events)


@pytest.mark.parametrize("around", [bare, metered])
def test_random_programs_see_again_what_they_saw_on_other_schedules(around):
    differ, met = 0, set()
    for number, scripts in programs(30, 5000):
        for now, other in zip(SCHEDULES, OTHERS, strict=True):
            run, again = partial(played, scripts, now), partial(played, scripts, other)
            found, codes = recorded(run, len(scripts), around)
            if found is None:
                continue  # a deadlock: there is nothing to repeat
            assert replayed(again, codes, around) == found, (number, now, other)
            differ += again(bare) != found  # who ignores the record is found out
            met |= set(kinds(codes))
    assert differ > 50
    assert {Kind.RECV, Kind.IRECV, Kind.PROBE, Kind.IPROBE, Kind.TEST} <= met
    assert {Kind.WAITANY, Kind.COMPUTE, Kind.UNSUCCESSFUL} <= met


@pytest.mark.parametrize("around", [bare, metered])
def test_a_server_comes_to_the_same_bits_on_10_other_schedules(around):
    hashes = set()
    for now, other in zip(SCHEDULES, OTHERS, strict=True):
        found, codes = recorded(partial(serving, now), 4, around)
        assert replayed(partial(serving, other), codes, around) == found
        assert found == serving(now, around)  # recording changes nothing
        hashes.add(found[0])
    assert len(hashes) > 7  # so the order does matter


def test_recording_takes_no_virtual_time():
    for number, scripts in programs(60, 6000):
        found = outcome(scripts, ODD, lambda comm: Recorded(comm, Log()))
        assert found == outcome(scripts, ODD), number


def test_what_is_received_from_someone_is_no_event():
    def program(comm, log):
        comm = Recorded(comm, log)
        for name in sorted(ALLREDUCE):
            ALLREDUCE[name](comm, np.arange(100.0))
        comm.Sendrecv(np.zeros(3), comm.rank, 1, np.zeros(3), comm.rank, 1)
        request = comm.Irecv(np.zeros(3), comm.rank, 1)
        comm.Isend(np.zeros(3), comm.rank, 1).Wait()
        comm.Waitall([request])

    logs = [Log() for _ in range(6)]
    sim.run(lambda comm: program(comm, logs[comm.rank]), 6)
    assert set(kinds([log.codes() for log in logs])) == {Kind.GROUP}


def test_many_polls_in_vain_are_one_event():
    def program(comm):
        if comm.rank:
            comm.Recv(np.zeros(1), 0)
            return comm.Send(np.ones(1), 0)
        found, into = [], np.zeros(1)
        request = comm.Irecv(into, ANY)
        for _ in range(2000):
            found += [comm.Iprobe(), request.Test()]
            found.append(comm.platform.compute(1e-6, unless=request))
        comm.Send(into, 1)
        request.Wait()
        return found, into[0]

    found, codes = recorded(on(2, program), 2)
    assert kinds([codes[0]]) == [Kind.GROUP, Kind.IRECV, Kind.UNSUCCESSFUL]
    assert decode(int(codes[0][0][2])).number == 6000
    assert found == [([False, False, True] * 2000, 1), None]
    assert replayed(on(2, program), codes) == found


def test_an_irecv_that_nobody_waited_for_takes_the_same_message_again():
    def program(comm, slow, tag):
        if comm.rank:
            comm.platform.compute(float(comm.rank == slow))
            comm.Send(np.full(1, comm.rank), 0)
            comm.Send(np.full(1, 10 * comm.rank), 0)
            return None
        got = [np.zeros(1, int) for _ in range(5)]
        comm.Irecv(got[0], ANY, tag)
        for into in got[1 : 4 + tag]:
            comm.Recv(into)
        return [int(one[0]) for one in got]

    for tag in (0, 1):  # tag 1 never comes
        found, codes = recorded(on(3, program, 1, tag), 3)
        other = on(3, program, 2, tag)
        assert other(bare) != found
        assert replayed(other, codes) == found
        assert (Kind.UNMATCHED in kinds(codes)) == bool(tag)


def test_an_irecv_that_nobody_waited_for_takes_nothing_of_what_is_collected():
    def program(comm):
        log, right = Log(), (comm.rank + 1) % comm.size
        top = Recorded(comm, log)
        for group in (top, top, top.Split(comm.rank % 2)):
            group.Irecv(np.zeros(99), ANY, ANY)
        top.Isend(np.zeros(1), right, comm.rank)
        comm.platform.compute(1e-3 * comm.rank)
        top.platform.note(comm.rank)
        return log.collect(comm), log.codes()

    for seed in range(4):
        (every, _), *others = found = sim.run(program, 5, seed=seed)
        assert [none for none, _ in others] == [None] * 4
        for rank, (got, (_, codes)) in enumerate(zip(every, found, strict=True)):
            assert [some.tolist() for some in got] == [some.tolist() for some in codes]
            _, taken, never, noted = (decode(code) for code in got[0].tolist())
            assert never.kind is Kind.UNMATCHED
            assert (taken.source, taken.tag) == ((rank - 1) % 5,) * 2
            assert (noted.number, kinds([got[1:]])) == (rank, [0, Kind.UNMATCHED])


def note(number):
    return lambda comm: comm.platform.note(number)


def receive(tag=3):
    return lambda comm: comm.Recv(np.zeros(1), ANY, tag)


def poll(times):
    return lambda comm: [comm.Iprobe(ANY, 99) for _ in range(times)]


def both(*calls):
    return lambda comm: [call(comm) for call in calls]


def nothing(comm):
    return None


CHANGES = [
    (
        note(12),
        note(13),
        "rank 0, event 1: expected note of 12, got note of 13; replay",
    ),
    (
        *(receive(), lambda comm: comm.Iprobe(ANY, 3)),
        "event 1: expected Recv from rank 1 with tag 3, got Iprobe(source=ANY, tag=3)",
    ),
    (receive(), receive(4), "rank 1 with tag 3, got Recv(source=ANY, tag=4)"),
    (
        *(receive(), both(receive(), receive(4))),
        "event 2: expected the end: the record ends after 1 events, got Recv(",
    ),
    (both(receive(), note(5)), receive(), "expected note of 5, got the end of the"),
    (
        *(both(poll(3), note(5)), both(poll(1), note(5))),
        "event 1: expected 2 unsuccessful polls, got note of 5",
    ),
    (
        lambda comm: comm.Waitany([comm.Irecv(np.zeros(1), ANY, 3)]),
        lambda comm: [comm.Irecv(np.zeros(1), ANY, 3), comm.Waitany([])],
        "event 2: expected Waitany that returns 0, got Waitany of 0 requests",
    ),
    (
        *(lambda comm: comm.Split(0), lambda comm: comm.Split(comm.rank)),
        "rank 1, communicator 1, event 0: expected rank 1 of 2 in a communicator, "
        "got rank 0 of 1 in a communicator",
    ),
    (lambda comm: comm.Dup(), nothing, "expected rank 0 of 2 in a communicator, got"),
    (nothing, lambda comm: comm.Dup(), "expected the end: the record ends after 0"),
]


@pytest.mark.parametrize("was, now, message", CHANGES)
def test_a_changed_program_is_caught_at_its_first_event(was, now, message):
    def run(call, wrap):
        def program(comm):
            comm.Isend(np.zeros(1), 1 - comm.rank, 3)
            comm.Isend(np.zeros(1), 1 - comm.rank, 4)
            call(wrap(comm))
            return 1

        try:
            return sim.run(program, 2)
        except sim.Deadlock as error:  # what was not received
            assert "messages are lost" in str(error)
            return [1]

    _, codes = recorded(lambda wrap: run(was, wrap), 2)
    replayed(lambda wrap: run(was, wrap), codes)
    with pytest.raises(BadInput) as caught:
        replayed(lambda wrap: run(now, wrap), codes)
    assert message in str(caught.value)


def test_waiting_for_what_never_came_is_refused():
    def program(comm, waits):
        request = comm.Irecv(np.zeros(1), ANY, 5)
        if waits:
            request.Wait()
        return 1

    _, codes = recorded(on(1, program, False), 1)
    with pytest.raises(BadInput, match="rank 0: expected no Wait for an Irecv"):
        replayed(on(1, program, True), codes)


def test_only_numbers_of_60_bits_are_noted():
    def program(comm, *numbers):
        for number in numbers:
            comm.platform.note(number)
        return 1

    most = 1 << 59
    for number in (most, -most - 1):
        with pytest.raises(BadInput, match="expected a number of 60 bits to note"):
            recorded(on(1, program, number), 1)
    numbers = [most - 1, -most, 0, -1, np.int64(7)]
    _, codes = recorded(on(1, program, *numbers), 1)
    assert [decode(code).number for code in codes[0][0][1:].tolist()] == numbers
    replayed(on(1, program, *numbers), codes)
