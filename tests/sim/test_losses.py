"""Lost messages, links in one direction, and ranks behind a NAT."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Loss, Nat, events
from dml.types import BadInput

ALPHA = 1e-3
NETWORK = sim.Uniform(ALPHA, 0, 0)


def received(comm, source, until):
    """Return the values that arrive from a source before a time."""
    values = []
    while True:
        value = np.zeros(1)
        request = comm.Irecv(value, source)
        if comm.platform.compute(max(0.0, until - comm.Wtime()), unless=request):
            request.Cancel()
            return values
        request.Wait()
        values.append(int(value[0]))


def run_counted(events_, count=200, nbytes=8):
    """Send `count` numbers from rank 0 to rank 1; return those that arrive."""

    def program(comm):
        if comm.rank == 1:
            return received(comm, 0, 10.0)
        values = np.zeros(nbytes // 8)
        for number in range(count):
            values[0] = number
            comm.Send(values, 1)
        return comm.Wtime()

    return sim.run(program, 2, NETWORK, events=events_)


def test_a_share_of_the_messages_is_lost_and_the_others_arrive_in_order():
    sent, arrived = run_counted([Loss(frozenset([0]), frozenset([1]), 0.25)])
    assert sent == pytest.approx(200 * ALPHA)  # a lost message takes the out port
    assert arrived == sorted(set(arrived)) and 120 < len(arrived) < 180
    assert run_counted(events("lose:0>1*0.25@0"))[1] == arrived


def test_losses_begin_and_end_at_their_times():
    start, stop = 50 * ALPHA, 100 * ALPHA
    lost = Loss(frozenset([0]), frozenset([1]), 1.0, start - 1e-9, stop - 1e-9)
    assert run_counted([lost])[1] == [*range(50), *range(100, 200)]


def test_a_lost_rendezvous_send_returns():
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(100_000), 1)
        return comm.Wtime()

    sent, _ = sim.run(program, 2, NETWORK, events=events("lose:0>1@0"))
    assert sent == pytest.approx(ALPHA)


def test_messages_of_a_rank_to_itself_are_never_lost():
    def program(comm):
        comm.Send(np.array([7.0]), comm.rank)
        return received(comm, comm.rank, 1.0)

    lost = Loss(frozenset([0, 1]), frozenset([0, 1]))
    assert sim.run(program, 2, NETWORK, events=[lost]) == [[7], [7]]


def test_a_one_way_link_loses_messages_in_one_direction():
    def program(comm):
        other = 1 - comm.rank
        comm.Send(np.array([7.0]), other)
        return received(comm, other, 1.0)

    assert sim.run(program, 2, NETWORK, events=events("lose:1>0@0")) == [[], [7]]


def test_only_replies_reach_a_rank_behind_a_nat():
    def program(comm):
        if comm.rank == 0:  # behind the NAT
            comm.platform.compute(0.5)
            comm.Send(np.array([1.0]), 1)
            return [received(comm, source, 2.0) for source in (1, 2)]
        comm.Send(np.array([2.0]), 0)  # too early
        comm.platform.compute(1.0)
        comm.Send(np.array([3.0]), 0)
        return [received(comm, 0, 2.0)]

    inside, *outside = sim.run(program, 3, NETWORK, events=[Nat(frozenset([0]))])
    assert inside == [[3], []]
    assert outside == [[[1]], [[]]]


def test_a_share_above_1_is_refused():
    with pytest.raises(BadInput, match="a share up to 1"):
        run_counted(events("lose:0>1*2@0"))


def test_each_loss_draws_by_its_seed():
    first = Loss(frozenset([0]), frozenset([1]), 1e-12, seed=1)
    second = Loss(frozenset([0]), frozenset([1]), 0.25, seed=2)
    assert run_counted([first, second]) == run_counted([second])
