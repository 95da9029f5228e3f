"""Ranks die, links drop and heal, programs never end: what others see."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death, HostDeath, Slow, SlowLink, events
from dml.types import ANY, BadInput, RankFailed
from tests.sim.play import clocks, exactly, first
from tests.sim.test_links import HOP, LINK, alone, arrivals, line

ALPHA, BETA = 1e-3, 1e-6
NETWORK = sim.Uniform(ALPHA, BETA, 0, host=2)
NEVER = float("inf")
WORD = np.zeros(1)
ROUTED = pytest.mark.parametrize("routed", ("", "slow:0-0*1@0..1"))
TOOK = ALPHA + 8 * BETA
SEND, RECV = ("Isend", 1, 8), ("Recv", 0, 8)


def run(program, size, text="", **options):
    return sim.run(program, size, NETWORK, events=events(text), **options)


def poll(comm):
    request = comm.Irecv(WORD, 0)
    while not request.Test():
        pass


WAYS = {
    "waits": lambda comm: comm.Recv(WORD, 0),
    "polls": poll,
    "probes": lambda comm: comm.Probe(ANY),
    "sends": lambda comm: comm.Send(np.zeros(100_000), 0),
    "computes": lambda comm: [comm.platform.compute(0.2) for _ in range(9)],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_dies_in_whatever_it_does(way):
    def program(comm):
        if comm.rank == 0:
            return comm.platform.compute(2)
        try:
            WAYS[way](comm)
        finally:
            ended.append(comm.Wtime())
        return "never"

    ended = []
    assert run(program, 2, "die:1@0.5") == [True, None]
    assert ended == [0.5]


@pytest.mark.parametrize("then", ([], [("Isend", 0, 8)], [("Irecv", 0, 8)]))
def test_a_rank_that_dies_while_a_message_travels_never_has_it(then):
    programs = [[SEND, *[("Irecv", 1, 8)] * (then == [("Isend", 0, 8)])], [RECV, *then]]
    early, late = (
        clocks(programs, NETWORK, events=events(f"die:1@{TOOK * factor}"))
        for factor in (0.5, 2)
    )
    assert early[1] is None
    assert late[1][0] == exactly(TOOK)


def test_a_receive_from_a_dead_rank_raises_rank_failed():
    programs = [[1.0, ("Recv", 1, 8)], [1.0, ("Send", 0, 8)]]
    with pytest.raises(RankFailed, match=r"rank 1 has died, in Recv\(source=1"):
        clocks(programs, NETWORK, events=events("die:1@0.5"))


def test_what_a_rank_sent_before_it_died_arrives_and_what_it_would_send_does_not():
    def program(comm):
        comm.Recv(WORD, 1)
        comm.platform.compute(1)
        return comm.Iprobe(1)

    other = [("Send", 0, 8), 0.4, ("Send", 0, 8)]
    assert not first(program, [other], NETWORK, events=events("die:1@0.3"))
    with pytest.raises(sim.Deadlock, match="lost"):
        first(program, [other], NETWORK, events=events("die:1@9"))


@pytest.mark.parametrize(
    "text, ended",
    [
        ("die_host:1@0.5", [1, 1, 0.5, 0.5, 1]),
        ("die_host:2@0.5;die:0@0.1", [0.1, 1, 1, 1, 0.5]),
        # Whoever dies twice dies the first time.
        ("die:0@0.3;die:0@0.6", [0.3, 1, 1, 1, 1]),
        ("die:0@0.6;die_host:0@0.3", [0.3, 0.3, 1, 1, 1]),
    ],
)
def test_a_host_takes_its_ranks_with_it(text, ended):
    def program(comm):
        try:
            comm.platform.compute(1)
        finally:
            times[comm.rank] = comm.Wtime()
        return comm.rank

    times = {}
    results = run(program, 5, text)
    assert [times[rank] for rank in range(5)] == ended
    assert results == [None if time < 1 else rank for rank, time in enumerate(ended)]


CUTS = ["cut:0-1@0.5..1.5", "cut:1-0@1.5..1.7", "cut:0-1@2..3", "cut:0-1@0.9..1"]


# Rank 0 sends a word to rank 1 at 0, 1, 2 and 3 s.
EXCHANGE = [[SEND, *[1.0, SEND] * 3], [RECV] * 4]


def exchange(text, **options):
    """Return when each word was there."""
    return clocks(EXCHANGE, NETWORK, events=events(text), **options)[1]


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "slow:0-1*100@0.5..2.5",
            [k + TOOK * (100 if k in (1, 2) else 1) for k in range(4)],
        ),
        # Failures between the same ranks multiply and end at their stops.
        (
            "slow:0-1*3@0..1;slow:1-0*5@0..2;slow:0-0*7@0",
            [k + TOOK * factor for k, factor in enumerate((15, 5, 1, 1))],
        ),
        # A partition holds messages until it heals, two in a row in any order.
        ("cut:0-1@0.5..2.5", [TOOK, 2.5 + TOOK, 2.5 + 2 * TOOK, 3 + TOOK]),
        (
            "cut:0-1@0.5..1.5;cut:1-0@1.2..1.7",
            [TOOK, 1.7 + TOOK, 2 + TOOK, 3 + TOOK],
        ),
        *(
            (";".join(CUTS[::order]), [TOOK, 1.7 + TOOK, 3 + TOOK, 3 + 2 * TOOK])
            for order in (1, -1)
        ),
    ],
)
def test_messages_between_slow_or_separated_ranks_are_late(text, expected):
    assert exchange(text) == exactly(expected)


def test_a_partition_that_never_ends_loses_messages_and_lists_them():
    with pytest.raises(sim.Deadlock, match="cannot arrive: 1000 bytes"):
        arrivals([(0, 2, 1000, 0.0)], line(3), events=[SlowLink(2)])
    with pytest.raises(sim.Deadlock) as caught:
        exchange("cut:0-1@2.5")
    text = str(caught.value)
    assert "cannot arrive: 8 bytes, tag=0, from rank 0 to rank 1" in text
    assert "rank 1 at 2.001008000 s: Recv(source=0" in text


ALONE = alone(2, 1000)
NARROW = 2 * HOP + ALPHA + 1000 * 10 * LINK


@pytest.mark.parametrize(
    "failures, expected",
    [
        ([], ALONE),
        ([SlowLink(2, stop=0.5)], 0.5 + ALONE),
        ([SlowLink(1, stop=0.5)], ALONE),
        ([SlowLink(2, 10.0, start=0.5)], ALONE),
        # What is over is over, even at that moment: the head comes to link 2 at HOP.
        ([SlowLink(2, 10.0, stop=HOP)], ALONE),
        # The narrowest place tells, wherever it is on the way.
        ([SlowLink(2, 10.0, stop=0.5)], NARROW),
        ([SlowLink(0, 10.0, stop=0.5)], NARROW),
        ([SlowLink(2, 10.0), SlowLink(3, 5.0)], NARROW),
        (
            [SlowLink(2, 10.0), SlowLink(2, 5.0), SlowLink(1, 7.0)],
            2 * HOP + ALPHA + 1000 * 50 * LINK,
        ),
    ],
)
def test_a_link_that_drops_holds_what_would_cross_it(failures, expected):
    found = arrivals([(0, 2, 1000, 0.0)], line(3), events=failures)
    assert found == [exactly(expected)]


def test_a_slow_link_is_busy_for_as_long_as_it_takes():
    messages = (0, 1, 1000, 0.0), (0, 2, 1000, 0.0)
    found = arrivals(messages, line(3), events=[SlowLink(0, 10.0)])
    busy = 1000 * 10 * LINK  # longer than rank 0's port takes: the second waits
    assert found == [exactly(HOP + ALPHA + busy), exactly(busy + NARROW)]


def test_a_message_that_waits_for_the_out_port_dies_with_its_sender():
    """The second departs when the first is out of the port; rank 0 is dead by then."""

    def program(comm):
        if comm.rank == 0:
            for _ in range(2):
                comm.Isend(WORD, 1)
            comm.platform.compute(1)
        comm.Recv(np.zeros(1), 0)
        comm.platform.compute(1)
        return comm.Iprobe(0)

    for when in (TOOK, TOOK / 2):
        assert run(program, 2, f"die:0@{when!r}") == [None, False]


def test_events_are_read_from_text():
    assert events("die:3@0.5; die_host:1@2;slow:0,1-2*10@0..1;cut:0-1@1e-3") == [
        Death(3, 0.5),
        HostDeath(1, 2.0),
        Slow(frozenset([0, 1]), frozenset([2]), 10.0, 0.0, 1.0),
        Slow(frozenset([0]), frozenset([1]), NEVER, 1e-3, NEVER),
    ]
    assert events("cut_link:7@0.5..2;slow_link:2*3.5@0") == [
        SlowLink(7, NEVER, 0.5, 2.0),
        SlowLink(2, 3.5, 0.0, NEVER),
    ]
    assert events("") == []


@pytest.mark.parametrize(
    "text, problem",
    [
        ("die:1", "expected events such as"),
        ("slow:0-1@0..1", "expected events such as"),
        ("die:1@1..2..3", "expected events such as"),
        ("die:2@0.5", "expected ranks, hosts or links from 0 to 1"),
        ("die_host:1@0.5", "expected ranks, hosts or links from 0 to 0"),
        ("cut:0-5@0", "expected ranks, hosts or links from 0 to 1"),
        ("cut:5-0@0", "expected ranks, hosts or links from 0 to 1"),
        ("cut:0-1@1..1", "a later stop"),
        ("cut_link:0@0", "a network with links"),
        ("die:1@-1", "expected a start of at least 0"),
        ("cut:0-1@2..1", "expected a start of at least 0"),
        ("slow:0-1*0@0..1", "a factor above 0"),
    ],
)
def test_bad_events_are_one_clear_line(text, problem):
    with pytest.raises(BadInput, match=problem) as caught:
        run(lambda comm: None, 2, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("event", (SlowLink(-1, 2.0), Death(-1, 0.5), Death(2, 0.5)))
def test_events_of_what_is_not_there_are_refused(event):
    with pytest.raises(BadInput, match="expected ranks, hosts or links from 0 to 1, "):
        sim.run(lambda comm: None, 2, line(2), events=[event])


def exchange_words(comm):
    peer = 1 - comm.rank
    comm.Sendrecv(WORD, peer, 0, np.zeros(1), peer, 0)


ENDLESS = {
    "computes": lambda comm: comm.platform.compute(1.0),
    "sends": lambda comm: comm.Send(WORD, 1 - comm.rank),
    "exchanges": exchange_words,
    "probes": lambda comm: comm.Iprobe(1 - comm.rank) or comm.platform.compute(1e-3),
}


@ROUTED
@pytest.mark.parametrize("step", ENDLESS)
def test_a_program_that_never_ends_is_ended_by_a_limit(step, routed):
    def program(comm):
        while True:
            ENDLESS[step](comm)

    limits = sim.Limits(seconds=5.0, messages=3000)
    with pytest.raises(sim.Deadlock, match="expected a program that ends") as caught:
        run(program, 2, routed, limits=limits)
    assert "\n" not in str(caught.value)
    assert "Limits(seconds=5.0, messages=3000)" in str(caught.value)


@ROUTED
def test_a_limit_of_messages_is_as_many_as_a_rank_may_send(routed):
    programs = [[("Send", 1)] * 4, [*[("Irecv", 0)] * 4, ("Wait",)]]
    how = {"events": events(routed)}
    clocks(programs, NETWORK, limits=sim.Limits(messages=4), **how)
    with pytest.raises(sim.Deadlock, match="got rank 0"):
        clocks(programs, NETWORK, limits=sim.Limits(messages=3), **how)
    limits = sim.Limits(seconds=3.1, messages=4)  # what ends in time is left alone
    assert len(exchange(routed, limits=limits)) == 4
