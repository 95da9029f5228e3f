"""Links that messages share: who waits for whom, how long, and what each carried."""

from typing import NamedTuple

import numpy as np
import pytest

from dml import sim
from dml.sim.networks.fabric import Links, Paths, Rates
from dml.types import ANY, BadInput, Status
from dml.wire.collectives import ALLREDUCE

ALPHA, BETA, HOP, LINK = 1e-3, 1e-6, 1e-4, 2e-6
RATES = Rates(ALPHA, BETA, 1e-7, 65536, HOP, LINK)


class Line(NamedTuple):
    """Routers in a row, a rank at each: link 2i goes from i to i + 1, 2i + 1 back."""

    size: int
    rates: Rates = RATES

    @property
    def capacity(self):
        return self.size

    def links(self):
        count = 2 * (self.size - 1)
        return Links(np.full(count, self.rates.hop), np.full(count, self.rates.link))

    def paths(self, source, dest):
        ways = [
            np.arange(a, b) * 2 if a < b else np.arange(a - 1, b - 1, -1) * 2 + 1
            for a, b in zip(source, dest, strict=True)
        ]
        starts = np.cumsum([0] + [len(way) for way in ways])
        links = np.concatenate(ways).astype(np.int32)
        ones = np.ones(len(source))
        return Paths(self.rates.alpha * ones, self.rates.beta * ones, starts, links)

    def hosts(self, size):
        return list(range(size))


def run(program, size, **options):
    return sim.run(program, size, Line(size), **options)


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


def sends(*messages, receives_late=0.0):
    """A program of messages (source, dest, bytes, when); returns when each came."""

    def program(comm):
        for source, dest, nbytes, after in messages:
            if comm.rank == source:
                comm.platform.compute(max(0, after - comm.Wtime()))
                comm.Isend(np.zeros(nbytes, np.uint8), dest)
        comm.platform.compute(receives_late)
        there = {}
        for k, (source, dest, nbytes, _) in enumerate(messages):
            if comm.rank == dest:
                comm.Recv(np.zeros(nbytes, np.uint8), source)
                there[k] = comm.Wtime()
        return there

    return program


def arrivals(*messages, size=4, **options):
    found = {}
    for there in run(sends(*messages, **options), size):
        found |= there
    return [found[k] for k in range(len(messages))]


def took(nbytes):
    """How long a message holds its sender's port."""
    return ALPHA + nbytes * BETA


def alone(hops, nbytes):
    return hops * HOP + ALPHA + nbytes * max(BETA, LINK)


@pytest.mark.parametrize("hops", (1, 2, 3))
@pytest.mark.parametrize("nbytes", (0, 1000))
def test_a_message_alone_takes_its_hops_and_the_narrowest_place(hops, nbytes):
    assert arrivals((0, hops, nbytes, 0.0)) == [exactly(alone(hops, nbytes))]
    assert arrivals((3, 3 - hops, nbytes, 0.0)) == [exactly(alone(hops, nbytes))]


def test_a_second_message_waits_for_the_link_that_both_need():
    one, two = arrivals((1, 2, 1000, 0.0), (0, 3, 1000, 0.0))
    # 0 → 3 comes to link 1 → 2 after a hop; it is busy for 1000 bytes from 0 on.
    assert one == exactly(alone(1, 1000))
    assert two == exactly(1000 * LINK + 2 * HOP + ALPHA + 1000 * LINK)


def test_messages_on_different_links_and_directions_pass_at_once():
    found = arrivals((0, 1, 1000, 0.0), (2, 3, 1000, 0.0), (1, 0, 1000, 0.0))
    assert found == [exactly(alone(1, 1000))] * 3


def test_a_link_goes_to_whoever_comes_to_it_first_not_to_who_departed_first():
    """Rank 0's message departs before rank 1's, and comes to link 1 → 2 after it."""
    found = arrivals((0, 3, 1000, 0.0), (1, 2, 1000, HOP / 2))
    assert found[1] == exactly(HOP / 2 + alone(1, 1000))
    assert found[0] == exactly(HOP / 2 + 1000 * LINK + 2 * HOP + ALPHA + 1000 * LINK)


def test_links_are_taken_from_the_source_on():
    """Rank 0's message comes to its last link, 1 → 2, after rank 1's has taken it."""
    found = arrivals((0, 2, 1000, 0.0), (1, 3, 1000, HOP / 2))
    assert found[1] == exactly(HOP / 2 + alone(2, 1000))
    assert found[0] == exactly(HOP / 2 + 1000 * LINK + HOP + ALPHA + 1000 * LINK)


def test_a_rank_takes_one_message_after_another_in_from_whatever_links():
    found = arrivals((0, 1, 1000, 0.0), (2, 1, 1000, 0.0))
    assert found == [exactly(alone(1, 1000)), exactly(alone(1, 1000) + alone(0, 1000))]


def test_receives_posted_together_take_their_turns_at_the_in_port():
    def program(comm):
        buffer = np.zeros(1000, np.uint8)
        if comm.rank != 1:
            return comm.Send(buffer, 1)
        requests = [comm.Irecv(buffer.copy(), source) for source in (0, 2)]
        return [(request.Wait(), comm.Wtime())[1] for request in requests]

    first, second = alone(1, 1000), alone(1, 1000) + alone(0, 1000)
    assert run(program, 3)[1] == [exactly(first), exactly(second)]


def test_a_rank_hands_one_message_after_another_out_to_whatever_links():
    found = arrivals((1, 0, 1000, 0.0), (1, 2, 1000, 0.0))
    assert found == [exactly(alone(1, 1000)), exactly(took(1000) + alone(1, 1000))]


def test_what_comes_before_its_receive_is_posted_goes_in_from_then_on():
    found = arrivals((0, 2, 1000, 0.0), receives_late=0.5)
    assert found == [exactly(0.5 + alone(0, 1000))]


def test_sends_that_wait_for_their_receives_take_turns_beside_what_is_buffered():
    def program(comm):
        if comm.rank == 1:
            requests = [comm.Isend(np.zeros(70_000, np.uint8), to) for to in (0, 2)]
            comm.Recv(np.zeros(1), 3)
            comm.Send(np.zeros(1000, np.uint8), 0)
            comm.Waitall(requests)
            return comm.Wtime()
        if comm.rank == 3:
            return comm.Send(np.zeros(1), 1)
        comm.Recv(np.zeros(70_000, np.uint8), 1)
        first = comm.Wtime()
        if comm.rank == 0:
            comm.Recv(np.zeros(1000, np.uint8), 1)
        return first, comm.Wtime()

    (first, eager), both, (second, _), _ = run(program, 4)
    assert first == exactly(alone(1, 70_000))
    assert second == exactly(2 * alone(1, 70_000))
    assert eager == exactly(alone(1, 70_000) + alone(0, 1000))
    assert both == second


@pytest.mark.parametrize("late, nbytes", ((0.0, 65536), (1.0, 65537)))
def test_a_send_up_to_the_eager_limit_does_not_wait_for_its_receive(late, nbytes):
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(nbytes, np.uint8), 1)
        else:
            comm.platform.compute(1.0)
            comm.Recv(np.zeros(nbytes, np.uint8), 0)
        return comm.Wtime()

    sent, received = run(program, 2)
    assert received == exactly(1.0 + alone(1 if late else 0, nbytes))
    assert sent == (received if late else exactly(took(nbytes)))


def test_both_ways_of_an_exchange_are_over_before_it_is():
    """What rank 1 gives takes longer than what it gets."""

    def program(comm):
        give, take = (np.zeros((1 - k) * 1000, np.uint8) for k in (0, 1))
        if comm.rank == 1:
            comm.Sendrecv(give, 0, 0, take, 0, 0)
        else:
            comm.Sendrecv(take, 1, 0, give, 1, 0)
        return comm.Wtime()

    assert run(program, 2) == [exactly(alone(1, 1000)), exactly(took(1000))]


@pytest.mark.parametrize("seed", (0, 1, 2, 3))
def test_the_link_goes_to_whoever_departs_first_in_virtual_time(seed):
    messages = [(0, 3, 1000, 0.2), (1, 2, 1000, 0.1999)]
    found = run(sends(*messages), 4, seed=seed)
    assert found[2][1] == exactly(0.1999 + alone(1, 1000))
    assert found[3][0] == exactly(0.1999 + 1000 * LINK + 2 * HOP + ALPHA + 1000 * LINK)


def test_a_send_above_the_eager_limit_departs_when_its_receive_is_there():
    def program(comm):
        buffer = np.zeros(70_000, np.uint8)
        if comm.rank == 0:
            comm.Send(buffer, 2)
        elif comm.rank == 2:
            comm.platform.compute(1)
            comm.Recv(buffer, 0)
        return comm.Wtime()

    sent, _, received = run(program, 3)
    assert sent == received == exactly(1 + alone(2, 70_000))


def test_a_link_carries_what_its_messages_bring():
    def program(comm):
        ALLREDUCE["ring"](comm, np.zeros(1000, np.float32))
        comm.Barrier()
        return comm.process.world.links.bytes

    size, nbytes = 5, 4000
    carried = run(program, size)[0]
    share = nbytes // size
    right = 2 * (size - 1) * share  # every rank sends so much to the next one
    assert carried[::2] == [right] * (size - 1)  # all hops but the way back
    assert carried[1::2] == [right] * (size - 1)  # the last rank's, over all links


@pytest.mark.parametrize("name", sorted(ALLREDUCE.keys() - {"shared"}))
@pytest.mark.parametrize("size", (2, 5, 8))
def test_an_allreduce_has_the_same_bits_on_a_line_and_repeats_exactly(name, size):
    rows = np.random.default_rng(0).standard_normal((size, 501)).astype(np.float32)

    def program(comm):
        buffer = rows[comm.rank].copy()
        ALLREDUCE[name](comm, buffer)
        return buffer.tobytes(), comm.Wtime()

    found = run(program, size)
    assert run(program, size) == found
    hosts = sim.Uniform(host=1)
    uniform = sim.run(program, size, hosts)
    assert [bits for bits, _ in found] == [bits for bits, _ in uniform]
    for seed in (1, 2):
        assert run(program, size, seed=seed) == found


def test_whoever_is_near_is_received_first_from_anyone():
    def program(comm):
        if comm.rank:
            comm.Send(np.array([comm.rank * 1.0]), 0)
            return None
        found = []
        for _ in range(comm.size - 1):
            comm.Recv(word := np.zeros(1), ANY)
            found.append(word[0])
        return found

    for seed in (0, 1, 2):
        assert run(program, 6, seed=seed)[0] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("late", (False, True))
def test_who_is_there_first_is_received_first_from_anyone_not_who_departed(late):
    def program(comm):
        if comm.rank == 0:
            if late:
                comm.Recv(np.zeros(1), 2)
            status, found = Status(), []
            for _ in range(2):
                comm.Recv(np.zeros(1), ANY, ANY, status)
                found.append(status.source)
            return found
        if comm.rank in (1, 5):
            comm.platform.compute(2 * HOP if comm.rank == 1 else 0.0)
            comm.Send(np.zeros(1), 0)
        if comm.rank == 2 and late:
            comm.platform.compute(1.0)
            comm.Send(np.zeros(1), 0)

    assert run(program, 6)[0] == [1, 5]


def test_a_network_that_is_too_small_is_refused():
    with pytest.raises(BadInput, match="expected 1 to 4 ranks on Line.*got 5"):
        sim.run(print, 5, Line(4))
    with pytest.raises(BadInput, match="got 0"):
        sim.run(print, 0, Line(4))


@pytest.mark.parametrize("first", (True, False))
def test_a_large_message_waits_for_the_small_one_that_a_busy_link_holds_up(first):
    def program(comm):
        if comm.rank == 1:
            comm.Send(np.zeros(60_000, np.uint8), 0, 1)  # the last link is busy
        elif comm.rank == 2:
            comm.platform.compute(2 * HOP)
            comm.Send(np.zeros(1), 0, 2)
            comm.Send(np.zeros(10_000), 0, 2)
        else:
            status, words, sizes = Status(), np.zeros(10_000), []
            if not first:  # from now on it may take from anyone
                comm.platform.compute(took(8) + 3 * HOP)
            comm.Iprobe(ANY, 3)
            for _ in range(2):
                comm.Recv(words, 2, 2, status)
                sizes.append(status.count // 8)
            comm.Recv(words, ANY, 1)
            return sizes

    assert run(program, 3)[0] == [1, 10_000]
