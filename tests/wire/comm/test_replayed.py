"""A replay of another program is refused at the first event that differs."""

import numpy as np
import pytest

from dml import sim
from dml.types import ANY, BadInput
from dml.wire.comm.events import decoded
from tests.wire.comm.replays import on, recorded, replayed


def receives(comm, tag=3):
    comm.Recv(np.zeros(1), ANY, tag)


def polls(comm, times):
    for _ in range(times):
        comm.Iprobe(ANY, 99)


CHANGES = [
    (
        lambda comm: comm.platform.note(12),
        lambda comm: comm.platform.note(13),
        "rank 0, event 1: expected 12 noted, got 13 noted; replay the program that",
    ),
    (
        lambda comm: [receives(comm), comm.platform.note(-1)],
        lambda comm: [receives(comm), comm.platform.note(1)],
        "event 2: expected -1 noted, got 1 noted",
    ),
    (
        receives,
        lambda comm: comm.Iprobe(ANY, 3),
        "event 1: expected Recv from rank 1 with tag 3, got Iprobe(source=ANY, tag=3)",
    ),
    (
        receives,
        lambda comm: receives(comm, 4),
        "expected Recv from rank 1 with tag 3, got Recv(source=ANY, tag=4)",
    ),
    (
        receives,
        lambda comm: comm.Recv(np.zeros(1), 0),
        "expected Recv from rank 1 with tag 3, got Recv(source=0, tag=ANY)",
    ),
    (
        receives,
        lambda comm: [receives(comm), receives(comm, 4)],
        "event 2: expected the end: the record ends after 1 events, got Recv(",
    ),
    (
        lambda comm: [receives(comm), comm.platform.note(5)],
        receives,
        "event 2: expected 5 noted, got the end of the program",
    ),
    (
        lambda comm: [polls(comm, 3), comm.platform.note(5)],
        lambda comm: [polls(comm, 1), comm.platform.note(5)],
        "event 1: expected 2 polls in vain, got 5 noted",
    ),
    (
        lambda comm: comm.Waitany([comm.Irecv(np.zeros(1), ANY, 3)]),
        lambda comm: [comm.Irecv(np.zeros(1), ANY, 3), comm.Waitany([])],
        "event 2: expected Waitany that returns 0, got Waitany of 0 requests",
    ),
    (
        lambda comm: comm.Split(0),
        lambda comm: comm.Split(comm.rank),
        "rank 1, communicator 1, event 0: expected rank 1 of 2 in a communicator, "
        "got rank 0 of 1 in a communicator",
    ),
    (
        lambda comm: comm.Dup(),
        lambda comm: None,
        "communicator 1, event 0: expected rank 0 of 2 in a communicator, got the end",
    ),
    (
        lambda comm: None,
        lambda comm: comm.Dup(),
        "communicator 1, event 0: expected the end: the record ends after 0 events",
    ),
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

    _, words = recorded(lambda wrap: run(was, wrap), 2)
    replayed(lambda wrap: run(was, wrap), words)
    with pytest.raises(BadInput) as caught:
        replayed(lambda wrap: run(now, wrap), words)
    assert message in str(caught.value)


def test_waiting_for_what_never_came_is_refused():
    def program(comm, waits):
        request = comm.Irecv(np.zeros(1), ANY, 5)
        if waits:
            request.Wait()
        return 1

    _, words = recorded(on(1, program, False), 1)
    with pytest.raises(BadInput, match="rank 0: expected no Wait for an Irecv"):
        replayed(on(1, program, True), words)


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
    _, words = recorded(on(1, program, *numbers), 1)
    assert [decoded(word).number for word in words[0][0][1:].tolist()] == numbers
    replayed(on(1, program, *numbers), words)
