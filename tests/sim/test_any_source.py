"""Receives from anyone: who was first in virtual time, whatever ran first."""

import numpy as np
import pytest

from dml import sim
from dml.types import ANY, Status
from dml.wire.comm.tags import Tag
from tests.sim.play import FABRICS, exactly, first

ALPHA, BETA = 1e-3, 1e-6
NETWORK = sim.Uniform(ALPHA, BETA, 0)
TOOK = ALPHA + BETA * 8  # seconds of a word
SEND = ("Send", 0, 8)


def received(comm, wanted):
    """Receive from sources with tags; list who sent what, and when it was there."""
    status, found = Status(), []
    for source, tag in wanted:
        comm.Recv(np.zeros(1), source, tag, status)
        found.append((status.source, status.tag, comm.Wtime()))
    return found


@FABRICS
@pytest.mark.parametrize("eager", (0, 65536))
@pytest.mark.parametrize(
    "delays, order",
    [
        ([0.3, 0.1, 0.4, 0.2], [2, 4, 1, 3]),
        ([0.0] * 4, [1, 2, 3, 4]),  # of one moment: by rank
    ],
)
def test_who_sends_first_in_virtual_time_is_received_first(
    events, eager, delays, order
):
    others = [[delay, (*SEND, rank)] for rank, delay in enumerate(delays, 1)]
    clock, expected = 0.0, []
    for source in order:
        clock = max(clock, delays[source - 1]) + TOOK
        expected.append((source, source, exactly(clock)))
    network = NETWORK._replace(eager=eager)
    for seed in (0, 1, 2):
        assert expected == first(
            lambda comm: received(comm, [(ANY, ANY)] * 4),
            *(others, network),
            events=events,
            seed=seed,
        )


@FABRICS
@pytest.mark.parametrize("eager", (0, 8, 65536))
def test_messages_of_one_pair_never_overtake_each_other(events, eager):
    def program(comm):
        status, lengths = Status(), []
        comm.platform.compute(0.5)
        for _ in range(6):
            comm.Recv(np.zeros(9), ANY, 3, status)
            lengths.append(status.count)
        return lengths

    sizes, network = [8, 40, 8, 72, 16, 8], NETWORK._replace(eager=eager)
    other = [*(("Isend", 0, nbytes, 3) for nbytes in sizes), ("Waitall",)]
    assert first(program, [other], network, events=events) == sizes


@FABRICS
def test_tags_and_sources_choose_among_those_that_wait(events):
    def choose(last):
        def program(comm):
            comm.platform.compute(1)
            wanted = (ANY, 7), (2, ANY), (ANY, ANY), last
            return [each[:2] for each in received(comm, wanted)]

        others = [[delay, (*SEND, 5), (*SEND, 7)] for delay in (0.1, 0.2)]
        return first(program, others, NETWORK, events=events)

    assert choose((ANY, 7)) == [(1, 7), (2, 5), (1, 5), (2, 7)]
    with pytest.raises(sim.Deadlock, match=r"Recv\(source=1, tag=5|Irecv\(source=1"):
        choose((1, 5))


@FABRICS
def test_receives_posted_before_and_after_the_first_from_anyone_take_theirs(events):
    def program(comm):
        if comm.rank == 0:
            into = np.zeros(5)
            named = comm.Irecv(into[2:3], 1, 1)
            first, second = comm.Irecv(into[:1], ANY, 0), comm.Irecv(into[1:2], 1, 0)
            comm.platform.compute(0.5)
            comm.Recv(into[3:4], ANY, 2)
            comm.Recv(into[4:], 1, 3)
            comm.Waitall([first, second, named])
            return into.tolist()
        for number, tag in enumerate((3, 2, 1, 0, 0)):
            comm.Send(np.array([number * 1.0]), 0, tag)

    assert sim.run(program, 2, NETWORK, events=events)[0] == [3, 4, 2, 1, 0]


@FABRICS
@pytest.mark.parametrize("eager", (0, 65536))
def test_a_probe_finds_a_message_alpha_after_it_was_sent_and_takes_nothing(
    events, eager
):
    def program(comm):
        status, seen = Status(), []
        comm.Probe(ANY, ANY, status)
        seen.append((status.source, status.tag, status.count, comm.Wtime()))
        comm.Probe(ANY, 5, status)
        seen.append((status.source, status.tag, status.count, comm.Wtime()))
        assert comm.Iprobe(ANY, 6, status)
        seen.append((status.source, status.tag, status.count))
        received(comm, [(1, 6), (2, 5)])
        return seen

    others = [[0.2, (*SEND, 6)], [0.4, ("Send", 0, 0, 5)]]
    found = first(program, others, NETWORK._replace(eager=eager), events=events)
    sent = (1, 6, 8, exactly(0.2 + ALPHA)), (2, 5, 0, exactly(0.4 + ALPHA))
    assert found == [*sent, (1, 6, 8)]


@FABRICS
@pytest.mark.parametrize("nap", (0.0, 1e-3))
def test_iprobe_turns_true_when_the_message_can_be_seen_and_not_before(events, nap):
    def program(comm):
        status = Status()
        while not comm.Iprobe(ANY, 4, status):
            comm.platform.compute(nap) if nap else None
        when = comm.Wtime()
        comm.Recv(np.zeros(1), status.source, 4)
        return status.source, when

    source, when = first(program, [[0.1, (*SEND, 4)]], NETWORK, events=events)
    assert source == 1
    assert 0.1 + ALPHA <= when <= 0.1 + ALPHA + nap + 1e-9


@FABRICS
def test_a_test_between_computations_finds_what_has_arrived_by_then(events):
    """Rank 0 polls every millisecond; the answer comes after a server's detour."""

    def program(comm):
        request, polls = comm.Irecv(np.zeros(1), 1), 0
        while not request.Test():
            comm.platform.compute(1e-3)
            polls += 1
        return polls

    others = [[("Recv", ANY, 8), SEND], [0.05, ("Send", 1, 8)]]
    polls = first(program, others, NETWORK, events=events)
    assert polls == int((0.05 + 2 * TOOK) / 1e-3) + 1


# Rank 3's answer is known at once; rank 2's is earlier, but not matched yet.
DETOUR = [[("Send", 2, 8)], [("Recv", ANY, 8), SEND], [1.0, SEND]]


@FABRICS
@pytest.mark.parametrize(
    "sources, others, expected",
    [
        ((1, 2, 3), [[0.3, SEND], [0.1, SEND], [0.2, SEND]], [(1, 2), (2, 3), (0, 1)]),
        ((3, 2), DETOUR, [(1, 2), (0, 3)]),
    ],
)
def test_waitany_names_the_request_that_is_done_first_then_the_others(
    events, sources, others, expected
):
    def program(comm):
        status, found = Status(), []
        requests = [comm.Irecv(np.zeros(1), source) for source in sources]
        while (place := comm.Waitany(requests, status)) >= 0:
            found.append((place, status.source, comm.Wtime()))
        return found

    found = first(program, others, NETWORK, events=events)
    assert [each[:2] for each in found] == expected
    if others is not DETOUR:
        times = [0.1 + TOOK, 0.2 + TOOK, 0.3 + TOOK]
        assert [each[2] for each in found] == exactly(times)


@FABRICS
@pytest.mark.parametrize("how", ("waits", "ends", "probes"))
def test_a_message_that_nobody_receives_is_lost_and_reported(events, how):
    def program(comm):
        if how == "waits":
            comm.Recv(np.zeros(1), ANY, Tag.RING)
        elif how == "probes":
            comm.Iprobe(ANY, 3)

    with pytest.raises(sim.Deadlock) as caught:
        first(program, [[(*SEND, Tag.TREE)]], NETWORK, events=events)
    text = str(caught.value)
    waits = "rank 0 at 0.000000000 s: Recv(source=ANY, tag=RING, 8 bytes)"
    assert (waits if how == "waits" else "1 messages are lost") in text
    assert "not received: 8 bytes, tag=TREE, from rank 1 to rank 0" in text
