"""A virtual world: who waits, who is told, what it costs in virtual seconds."""

import gc

import numpy as np
import pytest

from dml import sim
from dml.sim import world as world_of_sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm.tags import Tag

ALPHA, BETA, GAMMA = 1e-3, 1e-6, 1e-7
SLOW = sim.Uniform(ALPHA, BETA, GAMMA)


def message(nbytes):
    return ALPHA + BETA * nbytes


def exactly(seconds):
    return pytest.approx(seconds, rel=1e-12, abs=0)


@pytest.fixture(autouse=True)
def no_rank_spins(monkeypatch):
    """A rank that lets others go first a million times waits for what never comes."""
    pause, count = world_of_sim.Process.pause, 0

    def counted(process):
        nonlocal count
        count += 1
        assert count < 1_000_000, "ranks spin for ever; nobody said deadlock"
        pause(process)

    monkeypatch.setattr(world_of_sim.Process, "pause", counted)


# What it gives back, and in what order things happen.


def test_results_come_by_rank():
    assert sim.run(lambda comm: (comm.rank, comm.size), 4) == [(r, 4) for r in range(4)]


def test_results_and_clocks_repeat_exactly_and_no_seed_changes_them():
    rows = np.random.default_rng(0).standard_normal((9, 501)).astype(np.float32)

    def program(comm):
        found = []
        for allreduce in ALLREDUCE.values():
            buffer = rows[comm.rank].copy()
            comm.platform.compute(1e-4 * (comm.rank * 5 % 9))
            allreduce(comm, buffer)
            found.append((buffer.tobytes(), comm.Wtime()))
        return found

    first = sim.run(program, 9)
    assert sim.run(program, 9) == first
    for seed in (1, 99):
        again = sim.run(program, 9, seed=seed)
        assert [[b for b, _ in row] for row in again] == [
            [b for b, _ in row] for row in first
        ]
        assert sim.run(program, 9, seed=seed) == again


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
def test_no_seed_changes_the_clock_where_only_one_message_comes_to_a_port(name):
    def program(comm):
        ALLREDUCE[name](comm, np.ones(1001, np.float32))
        return comm.Wtime()

    first = sim.run(program, 6, SLOW)
    for seed in (1, 2, 3):
        assert sim.run(program, 6, SLOW, seed=seed) == [exactly(t) for t in first]


def test_a_seed_starts_ranks_in_another_order():
    def order(seed):
        came = []
        sim.run(lambda comm: came.append(comm.rank), 20, seed=seed)
        return came

    assert order(0) == list(range(20))
    assert order(1) != order(0)
    assert order(1) == order(1)
    assert sorted(order(1)) == list(range(20))


def test_worlds_nest():
    def program(comm):
        buffer = np.full(3, comm.rank)
        ALLREDUCE["ring"](comm, buffer)
        inner = sim.run(lambda c: c.size + int(buffer[0]), 2)
        comm.Barrier()
        return inner

    assert sim.run(program, 3) == [[5, 5]] * 3


def test_a_ring_of_500_ranks_is_right():
    rows = np.random.default_rng(0).integers(-99, 99, (500, 1027), np.int32)

    def program(comm):
        buffer = rows[comm.rank].copy()
        ALLREDUCE["ring"](comm, buffer)
        return buffer

    total = rows.sum(axis=0, dtype=np.int32)
    assert all(np.array_equal(mine, total) for mine in sim.run(program, 500))


def test_thousands_of_ranks_pass_a_butterfly():
    def program(comm):
        buffer = np.array([comm.rank, 1])
        ALLREDUCE["butterfly"](comm, buffer)
        return buffer.tolist()

    assert sim.run(program, 3000) == [[3000 * 2999 // 2, 3000]] * 3000


# Messages.


def test_messages_of_one_pair_and_tag_arrive_in_order_and_tags_choose():
    def program(comm):
        if comm.rank == 0:
            for number in (1, 2, 3, 4):
                comm.Send(np.array([number]), 1, Tag.RING if number % 2 else Tag.TREE)
            return None
        comm.platform.compute(1)
        got = []
        for tag in (Tag.TREE, Tag.RING, Tag.RING, Tag.TREE):
            buffer = np.zeros(1, int)
            comm.Recv(buffer, 0, tag)
            got.append(int(buffer[0]))
        return got

    assert sim.run(program, 2)[1] == [2, 1, 3, 4]


def test_a_receive_that_waits_takes_only_its_own_tag():
    def program(comm):
        if comm.rank == 1:
            tree, ring = np.zeros(1), np.zeros(1)
            requests = [comm.Irecv(tree, 0, Tag.TREE), comm.Irecv(ring, 0, Tag.RING)]
            for request in requests[::-1]:
                request.Wait()
            return tree[0], ring[0]
        comm.platform.compute(1)
        comm.Send(np.array([7.0]), 1, Tag.RING)
        comm.Send(np.array([8.0]), 1, Tag.TREE)
        return None

    assert sim.run(program, 2)[1] == (8.0, 7.0)


def test_a_buffered_send_may_be_overwritten_at_once():
    def program(comm):
        buffer = np.array([comm.rank + 5.0])
        if comm.rank == 0:
            comm.Send(buffer, 1, Tag.RING)
            buffer[0] = -1
            comm.Barrier()
        else:
            comm.Barrier()
            comm.Recv(buffer, 0, Tag.RING)
        return buffer[0]

    assert sim.run(program, 2) == [-1, 5]


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_a_rank_may_send_to_itself(eager):
    def program(comm):
        got = np.zeros(3)
        comm.Sendrecv(np.arange(3.0), comm.rank, Tag.RING, got, comm.rank, Tag.RING)
        return got.tolist()

    assert sim.run(program, 2, sim.Uniform(eager=eager)) == [[0, 1, 2]] * 2


def test_a_vector_may_be_received_into_a_matrix():
    """Messages are bytes: their shape does not travel."""

    def program(comm):
        rows = np.zeros((3, 2))
        other = 1 - comm.rank
        comm.Sendrecv(np.arange(6.0), other, Tag.RING, rows, other, Tag.RING)
        turned = np.zeros((2, 3))
        comm.Sendrecv(rows, other, Tag.RING, turned, other, Tag.RING)
        return rows.tolist(), turned.tolist()

    want = [[0, 1], [2, 3], [4, 5]], [[0, 1, 2], [3, 4, 5]]
    assert sim.run(program, 2) == [want] * 2


@pytest.mark.parametrize("late", (0, 1))
def test_a_message_longer_than_its_receive_raises(late):
    def program(comm):
        comm.platform.compute(1.0 * (comm.rank == late))
        if comm.rank != late:
            comm.Barrier()
        if comm.rank:
            comm.Irecv(np.zeros(2), 0, Tag.RING)
        else:
            comm.Isend(np.zeros(3), 1, Tag.RING)
        if comm.rank == late:
            comm.Barrier()

    with pytest.raises(
        BadInput, match="rank 1: message truncated: 24 bytes from rank 0"
    ):
        sim.run(program, 2)


def test_a_message_shorter_than_its_receive_fills_its_beginning():
    def program(comm):
        got = np.full(4, -1.0)
        if comm.rank:
            comm.Recv(got, 0, Tag.RING)
        else:
            comm.Send(np.array([1.0, 2.0]), 1, Tag.RING)
        return got.tolist()

    assert sim.run(program, 2)[1] == [1, 2, -1, -1]


# Deadlocks.


def test_a_deadlock_says_what_each_rank_waits_for():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(np.zeros(4, np.float32), 1, Tag.RING)
        elif comm.rank == 1:
            comm.Send(np.zeros(100_000), 2, Tag.TREE)
        elif comm.rank == 2:
            comm.Barrier()

    with pytest.raises(sim.Deadlock) as caught:
        sim.run(program, 4)
    first, *lines = str(caught.value).splitlines()
    assert first == "deadlock: 3 of 4 virtual ranks wait"
    assert "rank 0" in lines[0]
    assert "Recv(source=1, tag=RING, 16 bytes)" in lines[0]
    assert "rank 1" in lines[1]
    assert "Send(dest=2, tag=TREE, 800000 bytes)" in lines[1]
    assert "rank 2" in lines[2]
    assert "Barrier(), entered by 1 of 4 ranks" in lines[2]


def test_a_deadlock_of_many_ranks_is_told_in_few_lines():
    def program(comm):
        comm.Recv(np.zeros(1), (comm.rank + 1) % comm.size, Tag.RING)

    with pytest.raises(sim.Deadlock, match="500 of 500") as caught:
        sim.run(program, 500)
    assert len(str(caught.value).splitlines()) < 40
    assert "more ranks" in str(caught.value)


def send_round_a_ring(comm, nbytes):
    """What HOUSE.md bans: everyone sends first."""
    got = np.zeros(nbytes, np.uint8)
    comm.Send(
        np.full(nbytes, comm.rank, np.uint8), (comm.rank + 1) % comm.size, Tag.RING
    )
    comm.Recv(got, (comm.rank - 1) % comm.size, Tag.RING)
    return got.tolist()


@pytest.mark.parametrize("size", (2, 3, 8))
def test_unpaired_sends_round_a_ring_pass_up_to_the_eager_limit_only(size):
    network = sim.Uniform(eager=100)
    want = [[(rank - 1) % size] * 100 for rank in range(size)]
    assert sim.run(lambda comm: send_round_a_ring(comm, 100), size, network) == want
    with pytest.raises(sim.Deadlock, match=r"Send\(dest=1, tag=RING, 101 bytes\)"):
        sim.run(lambda comm: send_round_a_ring(comm, 101), size, network)


def test_sendrecv_names_the_receive_that_never_comes():
    def program(comm):
        if comm.rank == 0:
            here, there = np.zeros(2), np.zeros(3)
            comm.Sendrecv(here, 1, Tag.RING, there, 1, Tag.TREE)

    with pytest.raises(
        sim.Deadlock, match=r"rank 0.*Sendrecv\(source=1, tag=TREE, 24 bytes\)"
    ):
        sim.run(program, 2)


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
@pytest.mark.parametrize("length", (3, 50_000))
def test_an_allreduce_that_one_rank_misses_is_a_deadlock_at_once(name, length):
    def program(comm):
        if comm.rank != 1:
            ALLREDUCE[name](comm, np.zeros(length))

    with pytest.raises(sim.Deadlock):
        sim.run(program, 3)


def test_a_rank_that_never_comes_to_shared_memory_is_a_deadlock_at_once():
    def program(comm):
        ALLREDUCE["shared"](comm, np.zeros(3))  # the window is there
        if comm.rank != 1:
            ALLREDUCE["shared"](comm, np.zeros(3))

    with pytest.raises(sim.Deadlock, match="2 of 3"):
        sim.run(program, 3)


def test_polling_for_what_never_comes_is_a_deadlock_too():
    def program(comm):
        if comm.rank == 0:
            handle = allreduce_async(comm, np.zeros(3), allreduce=ALLREDUCE["ring"])
            while not handle.poll():
                pass

    with pytest.raises(sim.Deadlock):
        sim.run(program, 2)


def test_ranks_that_call_different_collectives_are_told_so():
    """MPI would hang or mix them up; a virtual world can tell."""

    def program(comm):
        if comm.rank:
            comm.Barrier()
        else:
            comm.Allreduce(None, np.zeros(3))

    with pytest.raises((sim.Deadlock, BadInput), match="Barrier"):
        sim.run(program, 2)


# Exceptions.


def test_an_exception_carries_the_rank_and_unwinds_the_others():
    unwound = []

    def program(comm):
        comm.Barrier()  # a rank that has not begun has nothing to unwind
        try:
            if comm.rank == 2:
                raise KeyError("lost")
            comm.Recv(np.zeros(1), 2, Tag.RING)
        finally:
            unwound.append(comm.rank)

    with pytest.raises(KeyError) as caught:
        sim.run(program, 4)
    assert caught.value.__notes__ == ["on virtual rank 2 of 4"]
    assert sorted(unwound) == [0, 1, 2, 3]


def test_a_deadlock_unwinds_all_ranks():
    unwound = []

    def program(comm):
        try:
            comm.Barrier() if comm.rank else comm.Recv(np.zeros(1), 1, Tag.RING)
        finally:
            unwound.append(comm.rank)

    with pytest.raises(sim.Deadlock):
        sim.run(program, 3)
    assert sorted(unwound) == [0, 1, 2]


def test_a_rank_that_waits_while_it_unwinds_keeps_nobody():
    unwound = []

    def program(comm):
        comm.Barrier()
        try:
            if comm.rank == 1:
                raise KeyError("lost")
            comm.Recv(np.zeros(1), 1, Tag.RING)
        finally:
            unwound.append(comm.rank)
            if comm.rank != 1:
                comm.Barrier()  # as a Free or a release would

    with pytest.raises(KeyError):
        sim.run(program, 3)
    gc.collect()
    assert sorted(unwound) == [0, 1, 2]


def test_what_is_under_way_is_unwound_with_its_rank():
    """Nothing after the poll may run: the all-reduce never ended."""
    unwound, went_on = [], []

    def program(comm):
        try:
            if comm.rank == 2:
                comm.platform.compute(1)
                raise KeyError("lost")
            handle = allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"])
            handle.wait()
            went_on.append(comm.rank)
        finally:
            unwound.append(comm.rank)

    with pytest.raises(KeyError):
        sim.run(program, 3)
    assert went_on == []
    assert sorted(unwound) == [0, 1, 2]


def test_a_rank_that_polls_is_unwound_while_it_does():
    unwound = []

    def program(comm):
        try:
            handle = allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"])
            for _ in range(100):
                if comm.rank == 2:
                    raise KeyError("lost")
                handle.poll()
            raise AssertionError("went on")
        finally:
            unwound.append(comm.rank)

    with pytest.raises(KeyError):
        sim.run(program, 3)
    assert sorted(unwound) == [0, 1, 2]


def test_a_world_that_failed_leaves_the_next_one_alone():
    with pytest.raises(sim.Deadlock):
        sim.run(lambda comm: comm.Recv(np.zeros(1), 0, Tag.RING), 2)
    assert sim.run(lambda comm: comm.Barrier(), 3) == [None] * 3


# Virtual time, by hand.


def times(program, size=2, network=SLOW):
    def timed(comm):
        program(comm)
        return comm.Wtime()

    return sim.run(timed, size, network)


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_a_message_takes_alpha_and_beta_a_byte_for_both_ends(eager):
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(500, np.uint8), 1, Tag.RING)
        else:
            comm.Recv(np.zeros(500, np.uint8), 0, Tag.RING)

    took = exactly(message(500))
    assert times(program, network=SLOW._replace(eager=eager)) == [took, took]


@pytest.mark.parametrize("eager, sender", ((1 << 20, 0.0), (0, 1.0)))
def test_a_late_receive_keeps_a_sender_above_the_eager_limit_only(eager, sender):
    def program(comm):
        if comm.rank == 0:
            comm.Send(np.zeros(500, np.uint8), 1, Tag.RING)
        else:
            comm.platform.compute(1.0)
            comm.Recv(np.zeros(500, np.uint8), 0, Tag.RING)

    sent, came = times(program, network=SLOW._replace(eager=eager))
    assert sent == exactly(sender + message(500))
    assert came == exactly(1.0 + message(500))


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_a_late_send_keeps_its_receiver(eager):
    def program(comm):
        if comm.rank == 0:
            comm.platform.compute(1.0)
            comm.Send(np.zeros(500, np.uint8), 1, Tag.RING)
        else:
            comm.Recv(np.zeros(500, np.uint8), 0, Tag.RING)

    took = exactly(1.0 + message(500))
    assert times(program, network=SLOW._replace(eager=eager)) == [took, took]


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_an_exchange_goes_both_ways_at_once(eager):
    def program(comm):
        got, other = np.zeros(500, np.uint8), 1 - comm.rank
        comm.Sendrecv(got.copy(), other, Tag.RING, got, other, Tag.RING)

    took = exactly(message(500))
    assert times(program, network=SLOW._replace(eager=eager)) == [took, took]


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_two_messages_out_of_one_port_go_one_after_the_other(eager):
    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank == 0:
            for request in [comm.Isend(data, peer, Tag.RING) for peer in (1, 2)]:
                request.Wait()
        else:
            comm.Recv(data, 0, Tag.RING)

    sender, first, second = times(program, 3, SLOW._replace(eager=eager))
    assert first == exactly(message(500))
    assert second == exactly(2 * message(500))
    assert sender == exactly(2 * message(500))


@pytest.mark.parametrize("eager", (0, 1 << 20))
def test_two_messages_into_one_port_come_one_after_the_other(eager):
    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank:
            comm.Send(data, 0, Tag.RING)
        else:
            requests = [comm.Irecv(data.copy(), peer, Tag.RING) for peer in (1, 2)]
            for request in requests:
                request.Wait()

    assert times(program, 3, SLOW._replace(eager=eager))[0] == exactly(2 * message(500))


def test_messages_between_different_pairs_pass_at_once():
    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank % 2:
            comm.Recv(data, comm.rank - 1, Tag.RING)
        else:
            comm.Send(data, comm.rank + 1, Tag.RING)

    assert times(program, 6) == [exactly(message(500))] * 6


def test_an_isend_costs_nothing_until_it_is_waited_for():
    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank == 0:
            request = comm.Isend(data, 1, Tag.RING)
            assert comm.Wtime() == 0
            comm.platform.compute(10.0)
            request.Wait()
        else:
            comm.Recv(data, 0, Tag.RING)

    assert times(program) == [10.0, exactly(message(500))]


def test_a_receive_posted_early_hides_its_message_behind_a_computation():
    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank == 0:
            comm.Send(data, 1, Tag.RING)
        else:
            request = comm.Irecv(data, 0, Tag.RING)
            comm.platform.compute(10.0)
            request.Wait()

    assert times(program) == [exactly(message(500)), 10.0]


def test_a_test_does_not_jump_ahead_in_time():
    """A message that is still under way has not come, and asking does not bring it."""

    def program(comm):
        data = np.zeros(500, np.uint8)
        if comm.rank == 0:
            comm.Send(data, 1, Tag.RING)
            return
        request = comm.Irecv(data, 0, Tag.RING)
        comm.platform.compute(message(500) / 2)
        assert not request.Test()
        assert comm.Wtime() < message(500)
        comm.platform.compute(message(500))
        assert request.Test()
        assert comm.Wtime() < 2 * message(500)

    times(program)


def test_reducing_takes_gamma_a_byte():
    def program(comm):
        total = np.array([1.0, 5.0])
        comm.Reduce_local(np.array([3.0, 2.0]), total, np.maximum)
        assert total.tolist() == [3.0, 5.0]

    assert times(program, 1) == [exactly(16 * GAMMA)]


def test_reducing_may_put_its_result_elsewhere():
    def program(comm):
        first, out = np.array([1.0, 5.0]), np.zeros(2)
        comm.Reduce_local(np.array([3.0, 2.0]), first, np.subtract, out)
        return first.tolist(), out.tolist()

    assert sim.run(program, 1) == [([1, 5], [-2, 3])]


@pytest.mark.parametrize("size, rounds", ((1, 0), (2, 1), (5, 3), (8, 3), (9, 4)))
def test_a_barrier_ends_rounds_after_the_last_one_came(size, rounds):
    def program(comm):
        comm.platform.compute(1.0 * comm.rank)
        comm.Barrier()

    assert times(program, size) == [exactly(size - 1 + rounds * ALPHA)] * size


# Groups, hosts.


def test_split_makes_a_group_a_colour_in_the_order_of_keys_then_ranks():
    def program(comm):
        group = comm.Split(comm.rank % 3, -(comm.rank // 4))
        names = np.zeros(group.size, int)
        names[group.rank] = comm.rank
        ALLREDUCE["tree"](group, names)
        return group.rank, names.tolist()

    found = sim.run(program, 8)
    groups = {0: [6, 0, 3], 1: [4, 7, 1], 2: [5, 2]}
    for rank, (place, names) in enumerate(found):
        assert names == groups[rank % 3]
        assert names[place] == rank


def test_messages_of_a_group_and_its_parent_never_mix():
    def program(comm):
        group = comm.Dup()
        ahead, behind = (comm.rank + 1) % 2, (comm.rank - 1) % 2
        sends = [
            comm.Isend(np.array([1.0]), ahead, Tag.RING),
            group.Isend(np.array([2.0]), ahead, Tag.RING),
        ]
        inner, outer = np.zeros(1), np.zeros(1)
        group.Recv(inner, behind, Tag.RING)
        comm.Recv(outer, behind, Tag.RING)
        for send in sends:
            send.Wait()
        return outer[0], inner[0], group.rank == comm.rank

    assert sim.run(program, 2) == [(1.0, 2.0, True)] * 2


def test_a_groups_port_is_its_ranks_port():
    def program(comm):
        group = comm.Dup()
        data = np.zeros(500, np.uint8)
        start = comm.Wtime()
        if comm.rank == 0:
            comm.Isend(data, 1, Tag.RING)
            group.Isend(data, 2, Tag.RING)
        else:
            (comm if comm.rank == 1 else group).Recv(data, 0, Tag.RING)
        return comm.Wtime() - start

    _, first, second = sim.run(program, 3, SLOW)
    assert second == exactly(2 * first)


@pytest.mark.parametrize(
    "host, hosts", ((0, [0] * 5), (1, [0, 1, 2, 3, 4]), (2, [0, 0, 1, 1, 2]))
)
def test_hosts_hold_as_many_ranks_as_the_network_says(host, hosts):
    assert (
        sim.run(lambda comm: comm.platform.hosts(), 5, sim.Uniform(host=host))
        == [hosts] * 5
    )


def test_a_groups_hosts_are_numbered_by_its_own_lowest_ranks():
    def program(comm):
        return comm.Split(comm.rank % 2, -comm.rank).hosts()

    found = sim.run(program, 6, sim.Uniform(host=2))
    assert found == [[0, 1, 2]] * 6


def test_a_window_is_everyones_memory_and_free_gives_it_back():
    def program(comm):
        window = comm.platform.shared_window(8)
        window.parts[comm.rank][:] = comm.rank + 1
        window.barrier(comm.platform.pause)
        seen = [int(part[0]) for part in window.parts]
        window.barrier(comm.platform.pause)
        window.Free()
        return seen, len(window.parts)

    assert sim.run(program, 3) == [([1, 2, 3], 0)] * 3
