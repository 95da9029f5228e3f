"""Links that messages share: who waits for whom, and how long."""

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.fabric import Rates
from dml.types import ANY, BadInput, Status
from tests.sim import play
from tests.sim.play import clocks, exactly, first

ALPHA, BETA, HOP, LINK = 1e-3, 1e-6, 1e-4, 2e-6
RATES = Rates(ALPHA, BETA, 1e-7, 65536, HOP, LINK)


def line(size):
    return play.Line(size, RATES)


def arrivals(messages, network, **options):
    """Return when each message is there: (source, dest, bytes, seconds before it)."""
    programs = [[] for _ in range(network.capacity)]
    for source, dest, nbytes, before in messages:
        programs[source] += [before, ("Isend", dest, nbytes)]
    for source, dest, nbytes, _ in messages:
        programs[dest].append(("Recv", source, nbytes))
    found = clocks(programs, network, **options)
    return [
        found[dest][programs[dest].index(("Recv", source, nbytes))]
        for source, dest, nbytes, _ in messages
    ]


def took(nbytes):
    """How long a message holds its sender's port."""
    return ALPHA + nbytes * BETA


def alone(hops, nbytes):
    return hops * HOP + ALPHA + nbytes * max(BETA, LINK)


BUSY = 1000 * LINK  # how long a message of 1000 bytes holds a link
SECOND = 2 * BUSY + 2 * HOP + ALPHA  # over 3 hops, of which the second is busy


@pytest.mark.parametrize(
    "messages, expected",
    [
        # A message alone takes its hops and the narrowest place.
        *(
            ([(*pair, nbytes, 0.0)], [alone(hops, nbytes)])
            for hops in (1, 2, 3)
            for nbytes in (0, 1000)
            for pair in ((0, hops), (3, 3 - hops))
        ),
        # 0 → 3 comes to link 1 → 2 after a hop; it is busy for 1000 bytes from 0 on.
        ([(1, 2, 1000, 0.0), (0, 3, 1000, 0.0)], [alone(1, 1000), SECOND]),
        # Messages on different links and directions pass at once.
        (
            [(0, 1, 1000, 0.0), (2, 3, 1000, 0.0), (1, 0, 1000, 0.0)],
            [alone(1, 1000)] * 3,
        ),
        # A link goes to whoever comes to it first, not to who departed first.
        (
            [(0, 3, 1000, 0.0), (1, 2, 1000, HOP / 2)],
            [HOP / 2 + SECOND, HOP / 2 + alone(1, 1000)],
        ),
        # Links are taken from the source on: 0 → 2 comes to 1 → 2 after 1 → 3.
        (
            [(0, 2, 1000, 0.0), (1, 3, 1000, HOP / 2)],
            [HOP / 2 + SECOND - HOP, HOP / 2 + alone(2, 1000)],
        ),
        # Whichever rank runs first: the message that departs first has the link.
        (
            [(0, 3, 1000, 0.2), (1, 2, 1000, 0.1999)],
            [0.1999 + SECOND, 0.1999 + alone(1, 1000)],
        ),
        # A rank takes one message in after another, and hands them out so.
        (
            [(0, 1, 1000, 0.0), (2, 1, 1000, 0.0)],
            [alone(1, 1000), alone(1, 1000) + alone(0, 1000)],
        ),
        (
            [(1, 0, 1000, 0.0), (1, 2, 1000, 0.0)],
            [alone(1, 1000), took(1000) + alone(1, 1000)],
        ),
    ],
)
def test_messages_come_when_links_and_ports_are_free(messages, expected):
    for seed in (0, 1, 2):
        assert arrivals(messages, line(4), seed=seed) == exactly(expected)


LARGE = 70_000  # bytes, above the eager limit
PAIR = alone(1, 1000) + alone(0, 1000)
LATE = 1 + alone(2, LARGE)


@pytest.mark.parametrize(
    "programs, expected",
    [
        # Receives posted together take their turns at the in port.
        (
            [
                [("Send", 1, 1000)],
                [("Irecv", 0, 1000), ("Irecv", 2, 1000), ("Wait",), ("Wait",)],
                [("Send", 1, 1000)],
            ],
            [[took(1000)], [0, 0, alone(1, 1000), PAIR], [took(1000)]],
        ),
        # What comes before its receive is posted goes in from then on.
        (
            [[("Send", 2, 1000)], [], [0.5, ("Recv", 0, 1000)]],
            [[took(1000)], [], [0.5, 0.5 + alone(0, 1000)]],
        ),
        # Sends that wait for their receives take turns beside what is buffered.
        (
            [
                [("Recv", 1, LARGE), ("Recv", 1, 1000)],
                [
                    *(("Isend", 0, LARGE), ("Isend", 2, LARGE), ("Recv", 3, 8)),
                    *(("Send", 0, 1000), ("Waitall",)),
                ],
                [("Recv", 1, LARGE)],
                [("Send", 1, 8)],
            ],
            [
                [alone(1, LARGE), alone(1, LARGE) + alone(0, 1000)],
                [0, 0, alone(2, 8), alone(2, 8) + took(1000), 2 * alone(1, LARGE)],
                [2 * alone(1, LARGE)],
                [took(8)],
            ],
        ),
        # A send up to the eager limit does not wait for its receive.
        (
            [[("Send", 1, 65536)], [1.0, ("Recv", 0, 65536)]],
            [[took(65536)], [1, 1 + alone(0, 65536)]],
        ),
        (
            [[("Send", 1, 65537)], [1.0, ("Recv", 0, 65537)]],
            [[1 + alone(1, 65537)], [1, 1 + alone(1, 65537)]],
        ),
        (
            [[("Send", 2, LARGE)], [], [1.0, ("Recv", 0, LARGE)]],
            [[LATE], [], [1, LATE]],
        ),
        # Both ways of an exchange are over before it is, also if one takes longer.
        (
            [[("Sendrecv", 1, 1, 1000)], [("Sendrecv", 0, 1000, 1)]],
            [[alone(1, 1000)], [took(1000)]],
        ),
    ],
)
def test_clocks_on_a_line_are_those_computed_by_hand(programs, expected):
    found = clocks(programs, line(len(programs)))
    assert found == [exactly(each) for each in expected]


@pytest.mark.parametrize("late", (False, True))
def test_who_is_there_first_is_received_first_from_anyone_not_who_departed(late):
    def program(comm):
        if late:
            comm.Recv(np.zeros(1), 2)
        status, found = Status(), []
        for _ in range(2):
            comm.Recv(np.zeros(1), ANY, ANY, status)
            found.append(status.source)
        return found

    word = ("Send", 0, 8)
    others = [[2 * HOP, word], [1.0, word] * late, [], [], [word]]
    assert first(program, others, line(6)) == [1, 5]


def test_a_network_that_is_too_small_is_refused():
    with pytest.raises(BadInput, match="expected 1 to 4 ranks on Line.*got 5"):
        sim.run(print, 5, line(4))
    with pytest.raises(BadInput, match="got 0"):
        sim.run(print, 0, line(4))


@pytest.mark.parametrize("at_once", (True, False))
def test_a_large_message_waits_for_the_small_one_that_a_busy_link_holds_up(at_once):
    def program(comm):
        status, words, sizes = Status(), np.zeros(10_000), []
        if not at_once:  # from now on it may take from anyone
            comm.platform.compute(took(8) + 3 * HOP)
        comm.Iprobe(ANY, 3)
        for _ in range(2):
            comm.Recv(words, 2, 2, status)
            sizes.append(status.count)
        comm.Recv(words, ANY, 1)
        return sizes

    busy = [("Send", 0, 60_000, 1)]  # the last link
    other = [2 * HOP, ("Send", 0, 8, 2), ("Send", 0, 80_000, 2)]
    assert first(program, [busy, other], line(3)) == [8, 80_000]
