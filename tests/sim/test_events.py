"""Ranks die, links drop and heal, programs never end: what others see."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death, HostDeath, Slow, SlowLink, events
from dml.types import ANY, BadInput

ALPHA, BETA = 1e-3, 1e-6
NETWORK = sim.Uniform(ALPHA, BETA, 0, host=2)
NEVER = float("inf")
WORD = np.zeros(1)
TOOK = ALPHA + 8 * BETA


def run(program, size, text="", **options):
    return sim.run(program, size, NETWORK, events=events(text), **options)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def test_a_rank_that_dies_does_nothing_from_then_on():
    seen = []

    def program(comm):
        for step in range(5):
            comm.compute(0.1)
            seen.append((comm.rank, step))
        return comm.rank

    assert run(program, 3, "die:1@0.25") == [0, None, 2]
    assert [step for rank, step in seen if rank == 1] == [0, 1]


@pytest.mark.parametrize("how", ("waits", "polls", "probes", "sends"))
def test_a_rank_dies_in_whatever_it_does(how):
    def program(comm):
        if comm.rank == 0:
            comm.compute(2)
            return "lives"
        try:
            if how == "waits":
                comm.Recv(WORD, 0)
            elif how == "polls":
                request = comm.Irecv(WORD, 0)
                while not request.Test():
                    pass
            elif how == "probes":
                comm.Probe(ANY)
            else:
                comm.Send(np.zeros(100_000), 0)
        finally:
            ended.append(comm.Wtime())
        return "never"

    ended = []
    assert run(program, 2, "die:1@0.5") == ["lives", None]
    assert ended == [0.5]


def test_whoever_waits_for_a_dead_rank_is_told_so():
    def program(comm):
        comm.compute(1)
        if comm.rank == 0:
            comm.Recv(WORD, 1)
        else:
            comm.Send(WORD, 0)

    with pytest.raises(sim.Deadlock) as caught:
        run(program, 2, "die:1@0.5")
    assert "rank 1 died at 0.500000000 s" in str(caught.value)
    assert "rank 0 at 1.000000000 s: Recv(source=1" in str(caught.value)


def test_what_a_rank_sent_before_it_died_arrives_and_what_it_would_send_does_not():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(WORD, 1)
            comm.compute(1)
            return comm.Iprobe(1)
        comm.Send(WORD, 0)
        comm.compute(0.4)
        comm.Send(WORD, 0)

    assert run(program, 2, "die:1@0.3") == [False, None]
    with pytest.raises(sim.Deadlock, match="lost"):
        run(program, 2, "die:1@9")


def test_a_host_takes_its_ranks_with_it():
    def program(comm):
        comm.compute(1)
        return comm.rank

    assert run(program, 5, "die_host:1@0.5") == [0, 1, None, None, 4]
    assert run(program, 5, "die_host:2@0.5;die:0@0.1") == [None, 1, 2, 3, None]


def exchange(comm):
    """Rank 0 sends a word to rank 1 at 0, 1, 2, … s; returns when each was there."""
    found = []
    for k in range(4):
        if comm.rank == 0:
            comm.compute(k - comm.Wtime())
            comm.Send(WORD, 1)
        else:
            comm.Recv(WORD, 0)
            found.append(comm.Wtime())
    return found


def test_messages_between_slow_ranks_take_longer_while_that_lasts():
    found = run(exchange, 2, "slow:0-1*100@0.5..2.5")[1]
    assert found == [exactly(k + TOOK * (100 if k in (1, 2) else 1)) for k in range(4)]


def test_a_partition_holds_messages_until_it_heals():
    found = run(exchange, 2, "cut:0-1@0.5..2.5")[1]
    assert found == [exactly(t) for t in (TOOK, 2.5 + TOOK, 2.5 + 2 * TOOK, 3 + TOOK)]


def test_a_partition_leaves_other_pairs_alone():
    def program(comm):
        peer = comm.rank ^ 2
        comm.Sendrecv(WORD, peer, 0, np.zeros(1), peer, 0)
        return comm.Wtime()

    assert run(program, 4, "cut:0,2-1,3@0") == [exactly(TOOK)] * 4


def test_a_partition_that_never_heals_loses_messages_and_says_which():
    with pytest.raises(sim.Deadlock) as caught:
        run(exchange, 2, "cut:0-1@2.5")
    text = str(caught.value)
    assert "nobody can receive 8 bytes, tag=0, from rank 0 to rank 1" in text
    assert "rank 1 at 2.001008000 s: Recv(source=0" in text


def test_two_partitions_in_a_row_hold_a_message_through_both():
    found = run(exchange, 2, "cut:0-1@0.5..1.5;cut:1-0@1.2..1.7")[1]
    assert found[1] == exactly(1.7 + TOOK)


def test_a_link_that_drops_holds_what_would_cross_it():
    from tests.sim.test_links import HOP, Line, alone

    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(1000, np.uint8), 2)
        if comm.rank == 2:
            comm.Recv(np.zeros(1000, np.uint8), 0)
        return comm.Wtime()

    def when(*trouble):
        return sim.run(program, 3, Line(3), events=trouble)[2]

    assert when() == exactly(alone(2, 1000))
    assert when(SlowLink(2, stop=0.5)) == exactly(0.5 + alone(2, 1000))
    assert when(SlowLink(1, stop=0.5)) == exactly(alone(2, 1000))
    assert when(SlowLink(2, 10.0, stop=0.5)) == exactly(2 * HOP + ALPHA + 1000 * 2e-5)
    assert when(SlowLink(2, 10.0, start=0.5)) == exactly(alone(2, 1000))
    with pytest.raises(sim.Deadlock, match="nobody can receive 1000 bytes"):
        when(SlowLink(2))


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
        ("burn:1@2", "expected events such as"),
        ("slow:0-1@0..1", "expected events such as"),
        ("die:1@1..2..3", "expected events such as"),
        ("die:2@0.5", "expected numbers from 0 to 1"),
        ("die_host:1@0.5", "expected numbers from 0 to 0"),
        ("cut:0-5@0", "expected numbers from 0 to 1"),
        ("cut_link:0@0", "has links"),
        ("die:1@-1", "expected times from 0 on"),
        ("cut:0-1@2..1", "expected times from 0 on"),
        ("slow:0-1*0@0..1", "a factor above 0"),
        ("slow:0-1*-2@0..1", "a factor above 0"),
    ],
)
def test_bad_events_are_one_clear_line(text, problem):
    with pytest.raises(BadInput, match=problem) as caught:
        run(lambda comm: None, 2, text)
    assert "\n" not in str(caught.value)


def never_computing(comm):
    while True:
        comm.compute(1.0)


def never_waiting(comm):
    while True:
        comm.Send(WORD, 1 - comm.rank)


def never_tired(comm):
    peer = 1 - comm.rank
    while True:
        comm.Sendrecv(WORD, peer, 0, np.zeros(1), peer, 0)


def never_sure(comm):
    while not comm.Iprobe(1 - comm.rank):
        comm.compute(1e-3)


@pytest.mark.parametrize("routed", ("", "slow:0-0*1@0..1"))
@pytest.mark.parametrize(
    "program", (never_computing, never_waiting, never_tired, never_sure)
)
def test_a_program_that_never_ends_is_ended_by_a_limit(program, routed):
    limits = sim.Limits(seconds=5.0, messages=3000)
    with pytest.raises(sim.Deadlock, match="expected a program that ends") as caught:
        run(program, 2, routed, limits=limits)
    assert "\n" not in str(caught.value)
    assert "Limits(seconds=5.0, messages=3000)" in str(caught.value)


def test_a_limit_leaves_what_ends_in_time_alone():
    limits = sim.Limits(seconds=3.1, messages=4)
    assert len(run(exchange, 2, limits=limits)[1]) == 4
