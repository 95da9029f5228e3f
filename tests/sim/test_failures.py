"""ULFM's operations on virtual ranks: no wait for a dead rank lasts for ever."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death
from dml.types import ANY, RankFailed
from dml.wire.collectives import ALLREDUCE, AUTO
from dml.wire.comm import Metered

ALPHA = 1e-5
NETWORK = sim.Uniform(ALPHA, 1e-9, 1e-10)
LONG = NETWORK.rates.eager  # elements of float32: more bytes than are buffered
WORD = np.zeros(1)


def run(program, size, *deaths, network=NETWORK):
    return sim.run(program, size, network, events=[Death(*death) for death in deaths])


def attempt(call):
    """Return the text of RankFailed, or the result of the call."""
    try:
        return call()
    except RankFailed as error:
        return str(error)


WAITS = {
    "Recv": lambda comm: comm.Recv(WORD.copy(), 1),
    "a long Send": lambda comm: comm.Send(np.zeros(LONG), 1),
    "Sendrecv": lambda comm: comm.Sendrecv(WORD, 1, 0, WORD.copy(), 1, 0),
    "Wait": lambda comm: comm.Irecv(WORD.copy(), 1).Wait(),
    "Waitany": lambda comm: comm.Waitany([comm.Irecv(WORD.copy(), 1)]),
    "Waitall": lambda comm: comm.Waitall([comm.Isend(np.zeros(LONG), 1)]),
    "Barrier": lambda comm: comm.Barrier(),
    "Allreduce": lambda comm: comm.Allreduce(WORD, WORD.copy()),
    "Split": lambda comm: comm.Split(),
    "shared_window": lambda comm: comm.platform.shared_window(8),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("begun", (0.0, 1.0))
def test_a_wait_for_a_dead_rank_raises_alpha_after_the_death(wait, begun):
    def program(comm):
        comm.platform.compute(9 if comm.rank else begun)
        return attempt(lambda: wait(comm)), comm.Wtime()

    (text, time), _, _ = run(program, 3, (1, 0.5))
    assert "rank 1 has died" in text
    assert time == pytest.approx(max(begun, 0.5) + ALPHA, abs=2.1 * ALPHA)


def test_a_polled_receive_from_a_dead_rank_raises():
    def program(comm):
        if comm.rank:
            return comm.platform.compute(9)
        request = comm.Irecv(WORD.copy(), 1)
        while not request.Test():
            comm.platform.compute(0.1)

    with pytest.raises(RankFailed, match="rank 1 has died"):
        run(program, 2, (1, 0.5))


def test_a_message_that_left_before_the_death_arrives():
    def program(comm):
        if comm.rank == 1:
            comm.Send(np.array([7.0]), 0)
            return comm.platform.compute(9)
        comm.platform.compute(1)
        first, second = np.zeros(1), np.zeros(1)
        comm.Recv(first, 1)
        return first[0], attempt(lambda: comm.Recv(second, 1))

    (first, second), _ = run(program, 2, (1, 0.5))
    assert first == 7 and "has died" in second


@pytest.mark.parametrize("begun", (0.0, 1.0))
def test_a_message_behind_another_that_had_not_left_does_not_arrive(begun):
    def program(comm):
        if comm.rank == 1:  # the second waits for the port, where it is lost
            requests = [comm.Isend(np.zeros(100), 0, tag) for tag in (1, 2)]
            comm.platform.compute(9)
            return comm.Waitall(requests)
        buffer = np.zeros(100)
        comm.Recv(buffer, 1, 1)
        comm.platform.compute(begun)
        comm.Get_failed()  # processes all earlier events
        return attempt(lambda: comm.Recv(buffer, 1, 2))

    text, _ = run(program, 2, (1, ALPHA / 2))
    assert "has died" in text


@pytest.mark.parametrize("events", ([], [Death(0, 1e3)]), ids=("uniform", "routed"))
def test_revoke_ends_the_waits_of_living_ranks_and_later_operations(events):
    def program(comm):
        child = comm.Split(0)
        if comm.rank == 0:
            comm.platform.compute(1)
            comm.Revoke()
        waited = attempt(lambda: child.Recv(WORD.copy(), (comm.rank + 1) % 3))
        later = attempt(lambda: comm.Send(WORD, 0)), attempt(comm.Barrier)
        assert comm.Is_revoked() and child.Is_revoked()
        return [waited, *later], comm.Wtime(), comm.Agree(6 + comm.rank % 2)

    for texts, time, flag in sim.run(program, 3, NETWORK, events=events):
        assert all(text.endswith("the communicator was revoked") for text in texts)
        assert time == pytest.approx(1 + 3 * ALPHA)  # 2 for Split, 1 for Revoke
        assert flag == 6


def test_a_second_revocation_does_not_end_waits_on_another_communicator():
    def program(comm):
        other, comm = comm, comm.Dup()
        if comm.rank == 0:
            texts = [attempt(lambda: comm.Recv(WORD.copy(), 2))]
            texts.append(attempt(lambda: other.Recv(WORD.copy(), 2)))
            return texts
        comm.platform.compute(comm.rank)
        comm.Revoke()
        if comm.rank == 2:
            comm.platform.compute(1)
            other.Get_failed()
            other.Send(WORD, 0)

    texts = sim.run(program, 3, NETWORK)[0]
    assert texts == ["rank 0: the communicator was revoked", None]


def test_a_collective_call_completes_if_the_dead_rank_had_entered_it():
    def program(comm):
        comm.platform.compute(comm.rank)
        comm.Get_failed()
        comm.Barrier()
        return attempt(comm.Barrier)

    dead, *others = run(program, 3, (0, 0.5))
    assert dead is None and all("has died" in text for text in others)


def test_agree_and_shrink_leave_out_ranks_that_die_before_and_meanwhile():
    def program(comm):
        comm.platform.compute(comm.rank)
        flag = comm.Agree(7 - (1 << comm.rank % 4 if comm.rank < 3 else 0))
        comm.platform.compute(1)
        living = Metered(comm).Shrink()
        values = np.full(5, comm.rank, np.float32)
        ALLREDUCE["ring"](living, values)
        return flag, living.rank, living.size, values[0], comm.Get_failed()

    results = run(program, 6, (1, 0.2), (4, 5.5))
    assert results == [
        (2, 0, 4, 10, [1, 4]),
        None,
        (2, 1, 4, 10, [1, 4]),
        (2, 2, 4, 10, [1, 4]),
        None,
        (2, 3, 4, 10, [1, 4]),
    ]


def test_receives_from_any_fail_by_deaths_that_are_not_acknowledged():
    def program(comm):
        if comm.rank == 2:
            comm.platform.compute(2)
            return comm.Send(np.array([2.0]), 0)
        if comm.rank == 1:
            return comm.platform.compute(9)
        comm.Ack_failed()
        buffer = np.zeros(1)
        request = comm.Irecv(buffer, ANY)
        text = attempt(request.Wait)
        again = attempt(lambda: comm.Waitany([request]))
        comm.Ack_failed()
        request.Wait()
        return text, again, buffer[0]

    (text, again, value), _, _ = run(program, 3, (1, 0.5))
    assert text == again and "rank 1 has died, in a receive from ANY" in text
    assert value == 2


def test_without_acknowledgement_receives_from_any_do_not_fail():
    def program(comm):
        if comm.rank == 0:
            return comm.Recv(WORD.copy(), ANY)
        comm.platform.compute(comm.rank)
        comm.Send(WORD, 0)

    run(program, 3, (1, 0.5))


def test_a_rank_that_ended_its_program_before_its_death_is_not_reported():
    def program(comm):
        if comm.rank:
            comm.platform.compute(1)
        return comm.Get_failed()

    assert run(program, 2, (0, 0.5)) == [[], []]


@pytest.mark.parametrize("name", sorted(set(ALLREDUCE) - {*AUTO}))
def test_an_all_reduce_fails_on_no_or_all_ranks_after_revoke_and_agree(name):
    """Deaths at random times; the survivors repeat the all-reduce by themselves."""

    def program(comm):
        committed = []
        while len(committed) < 5:
            values = np.full(1000, comm.rank + 1, np.float32)
            try:
                ALLREDUCE[name](comm, values)
                done = 1
            except RankFailed:
                comm.Revoke()
                done = 0
            if comm.Agree(done):
                committed.append(values.tolist())
            else:
                comm = comm.Shrink()
        return committed, comm.Wtime()

    sums = [21.0] * 1000, [15.0] * 1000  # of 6 and of 5 ranks
    end = sim.run(program, 6, NETWORK)[0][1]
    for time in np.random.default_rng(0).uniform(0, end, 12):
        *others, _ = run(program, 6, (5, time))
        assert all(committed == others[0][0] for committed, _ in others)
        assert sorted(others[0][0], reverse=True) == others[0][0]
        assert all(values in sums for values in others[0][0])
