"""A virtual world: who waits, who is told, what it costs in virtual seconds."""

import gc

import numpy as np
import pytest

from dml import sim
from dml.sim.run import FUNCTIONS
from dml.types import BadInput
from dml.wire import collectives
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm import Metered
from dml.wire.comm.tags import Tag
from tests.sim.play import FABRICS, clocks, exactly

ALPHA, BETA, GAMMA = 1e-3, 1e-6, 1e-7
SLOW = sim.Uniform(ALPHA, BETA, GAMMA)
RING, TREE = Tag.RING, Tag.TREE


def test_a_seed_starts_ranks_in_another_order():
    def order(seed):
        came = []
        sim.run(lambda comm: came.append(comm.rank), 20, seed=seed)
        return came

    assert order(0) == list(range(20))
    assert order(1) == order(1) != order(0)
    assert sorted(order(1)) == list(range(20))


def test_worlds_nest():
    def program(comm):
        buffer = np.full(3, comm.rank)
        ALLREDUCE["ring"](comm, buffer)
        inner = sim.run(lambda c: c.size + int(buffer[0]), 2)
        comm.Barrier()
        return inner

    assert sim.run(program, 3) == [[5, 5]] * 3


# Messages.


def test_messages_of_one_pair_and_tag_arrive_in_order_as_sent_and_tags_choose():
    def program(comm):
        if comm.rank == 0:
            buffer = np.zeros(1, int)  # overwritten at once: sends are buffered
            for number in (1, 2, 3, 4, 5, 6, -1):
                comm.platform.compute(2.0 * (number == 5))
                buffer[:] = number
                if number > 0:
                    comm.Send(buffer, 1, RING if number % 2 else TREE)
            return None
        comm.platform.compute(1)
        got = np.zeros(6, int)
        for place, tag in enumerate((TREE, RING, RING, TREE)):
            comm.Recv(got[place : place + 1], 0, tag)
        tree, ring = comm.Irecv(got[4:5], 0, TREE), comm.Irecv(got[5:], 0, RING)
        ring.Wait()
        tree.Wait()
        return got.tolist()

    assert sim.run(program, 2)[1] == [2, 1, 3, 4, 6, 5]


def test_a_vector_may_be_received_into_a_matrix():
    def program(comm):
        rows, other = np.zeros((3, 2)), 1 - comm.rank
        comm.Sendrecv(np.arange(6.0), other, RING, rows, other, RING)
        return rows.tolist()

    assert sim.run(program, 2) == [[[0, 1], [2, 3], [4, 5]]] * 2


@pytest.mark.parametrize(
    "programs, says",
    [
        (
            [[("Isend", 1, 24)], [("Irecv", 0, 16)]],
            "truncated.* longer one from rank 0",
        ),
        (
            [[("Irecv", 1, 16)], [("Isend", 0, 24)]],
            "truncated.* longer one from rank 1",
        ),
    ],
)
def test_a_message_longer_than_its_receive_raises(programs, says):
    with pytest.raises(BadInput, match=says):
        clocks(programs, SLOW)


# Deadlocks.


def test_a_deadlock_lists_what_each_rank_waits_for():
    def program(comm):
        if comm.rank == 0:
            comm.Recv(np.zeros(4, np.float32), 1, RING)
        elif comm.rank == 1:
            comm.Send(np.zeros(100_000), 2, TREE)
        elif comm.rank == 2:
            comm.Barrier()
        elif comm.rank == 4:
            comm.Sendrecv(np.zeros(2), 3, RING, np.zeros(3), 3, TREE)

    with pytest.raises(sim.Deadlock) as caught:
        sim.run(program, 5)
    assert str(caught.value).splitlines()[:5] == [
        "deadlock: 4 of 5 virtual ranks wait",
        "  rank 0 at 0.000000000 s: Recv(source=1, tag=RING, 16 bytes)",
        "  rank 1 at 0.000000000 s: Send(dest=2, tag=TREE, 800000 bytes)",
        "  rank 2 at 0.000000000 s: Barrier(), entered by 1 of 5 ranks",
        "  rank 4 at 0.000000000 s: Sendrecv(source=3, tag=TREE, 24 bytes)",
    ]


def test_a_deadlock_of_many_ranks_has_few_lines():
    def program(comm):
        comm.Recv(np.zeros(1), (comm.rank + 1) % comm.size, RING)

    with pytest.raises(sim.Deadlock, match="500 of 500") as caught:
        sim.run(program, 500)
    assert len(str(caught.value).splitlines()) < 40
    assert "more ranks" in str(caught.value)


@pytest.mark.parametrize("size", (2, 3, 8))
def test_unpaired_sends_round_a_ring_pass_up_to_the_eager_limit_only(size):
    def everyone_sends_first(nbytes):
        ring = [((rank + 1) % size, (rank - 1) % size) for rank in range(size)]
        how = nbytes, RING
        programs = [[("Send", to, *how), ("Recv", by, *how)] for to, by in ring]
        return clocks(programs, sim.Uniform(eager=100))

    assert len(everyone_sends_first(100)) == size
    with pytest.raises(sim.Deadlock, match=r"Send\(dest=1, tag=RING, 101 bytes\)"):
        everyone_sends_first(101)


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
@pytest.mark.parametrize("before", (0, 1))  # the second time, groups and windows exist
def test_an_allreduce_that_one_rank_misses_is_a_deadlock_at_once(name, before):
    def program(comm):
        for _ in range(before + (comm.rank != 1)):
            ALLREDUCE[name](comm, np.zeros(3))
            ALLREDUCE[name](comm, np.zeros(50_000))

    with pytest.raises(sim.Deadlock, match="2 of 3"):
        sim.run(program, 3)


def test_ranks_that_call_different_collectives_are_refused():
    """MPI would hang or mix them up; a virtual world can tell."""

    def program(comm):
        if comm.rank:
            comm.Barrier()
        else:
            comm.Allreduce(None, np.zeros(3))

    with pytest.raises((sim.Deadlock, BadInput), match="Barrier"):
        sim.run(program, 2)


# Exceptions.


def receive(comm):
    comm.Barrier()  # a rank that has not begun has nothing to unwind
    comm.Recv(np.zeros(1), 2, RING)


def reduce_and_wait(comm):
    allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"]).wait()


def reduce_and_poll(comm):
    handle = allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"])
    while not handle.poll():
        pass


@pytest.mark.parametrize("waits", (False, True), ids=("ends", "waits"))
@pytest.mark.parametrize("fails", (True, False), ids=("fails", "deadlock"))
@pytest.mark.parametrize("body", (receive, reduce_and_wait, reduce_and_poll))
def test_all_ranks_are_unwound(body, fails, waits):
    """Also where a rank waits while it is unwound, as in a Free or a release."""
    unwound, finished = [], []

    def program(comm):
        try:
            if comm.rank == 2:
                comm.Barrier() if body is receive else comm.platform.compute(1.0)
                if fails:
                    raise KeyError("lost")
                return
            body(comm)
            finished.append(comm.rank)
        finally:
            unwound.append(comm.rank)
            if waits and comm.rank != 2:
                comm.Barrier()

    with pytest.raises(KeyError if fails else sim.Deadlock) as caught:
        sim.run(program, 3)
    assert not fails or caught.value.__notes__ == ["on virtual rank 2 of 3"]
    gc.collect()
    assert (sorted(unwound), finished) == ([0, 1, 2], [])
    assert sim.run(lambda comm: comm.Barrier(), 3) == [None] * 3


@pytest.mark.parametrize(
    "name, advice",
    [
        ("Bcast", "call dml.wire.collectives.broadcast"),
        ("bcast", "call dml.wire.collectives.broadcast"),
        ("send", "call Send, whose buffers are NumPy arrays"),
        ("Scan", "docs/virtual.md lists the supported"),
    ],
)
def test_a_missing_operation_of_mpi4py_is_an_error_with_its_replacement(name, advice):
    with pytest.raises(AttributeError, match=f"no '{name}'; {advice}"):
        sim.run(lambda comm: getattr(Metered(comm), name), 2)
    assert all(hasattr(collectives, function) for function in FUNCTIONS.values())


def test_rank_and_size_have_both_names_of_mpi4py():
    def program(comm):
        return comm.Get_rank(), comm.Get_size(), Metered(comm).Get_rank()

    assert sim.run(program, 2) == [(0, 2, 0), (1, 2, 1)]


# Virtual time, by hand, of messages of 500 bytes.

ONE = ALPHA + BETA * 500
BOTH, EAGER, WAITS = (0, 1 << 20), (1 << 20,), (0,)
SEND, RECV = ("Send", 1), ("Recv", 0)
PAIRS = [
    [("Recv", rank - 1)] if rank % 2 else [("Send", rank + 1)] for rank in range(6)
]
TWO_OUT = [[("Isend", 1), ("Isend", 2), ("Waitall",)], [RECV], [RECV]]
TWO_IN = [[("Irecv", 1), ("Irecv", 2), ("Waitall",)], [("Send", 0)], [("Send", 0)]]


@pytest.mark.parametrize(
    "limits, programs, expected",
    [
        # Both ends of a message take α + β a byte.
        (BOTH, [[SEND], [RECV]], [[ONE], [ONE]]),
        # A late receive keeps a sender above the eager limit only.
        (EAGER, [[SEND], [1.0, RECV]], [[ONE], [1, 1 + ONE]]),
        (WAITS, [[SEND], [1.0, RECV]], [[1 + ONE], [1, 1 + ONE]]),
        # A late send keeps its receiver.
        (BOTH, [[1.0, SEND], [RECV]], [[1, 1 + ONE], [1 + ONE]]),
        # Both directions of an exchange pass at once.
        (BOTH, [[("Sendrecv", 1)], [("Sendrecv", 0)]], [[ONE], [ONE]]),
        # Two messages out of one port, or into one, follow each other.
        (BOTH, TWO_OUT, [[0, 0, 2 * ONE], [ONE], [2 * ONE]]),
        (WAITS, TWO_IN, [[0, 0, 2 * ONE], [ONE], [2 * ONE]]),
        (EAGER, TWO_IN, [[0, 0, 2 * ONE], [ONE], [ONE]]),
        # Messages between different pairs pass at once.
        (BOTH, PAIRS, [[ONE]] * 6),
        # An eager request takes no time until it is waited for.
        (EAGER, [[("Isend", 1), 10.0, ("Wait",)], [RECV]], [[0, 10, 10], [ONE]]),
        # A receive posted early hides its message behind a computation.
        (BOTH, [[SEND], [("Irecv", 0), 10.0, ("Wait",)]], [[ONE], [0, 10, 10]]),
    ],
)
@FABRICS
def test_clocks_are_those_computed_by_hand(limits, programs, expected, events):
    for eager in limits:
        found = clocks(programs, SLOW._replace(eager=eager), events=events)
        assert found == [exactly(each) for each in expected], eager


def test_reducing_takes_gamma_a_byte_and_may_put_its_result_elsewhere():
    def program(comm):
        total, out = np.array([1.0, 5.0]), np.zeros(2)
        comm.Reduce_local(np.array([3.0, 2.0]), total, np.maximum)
        comm.Reduce_local(np.array([1.0, 1.0]), total, np.subtract, out)
        return total.tolist(), out.tolist(), comm.Wtime()

    assert sim.run(program, 1, SLOW) == [([3, 5], [2, 4], exactly(32 * GAMMA))]


@pytest.mark.parametrize("size, rounds", ((1, 0), (2, 1), (5, 3), (8, 3), (9, 4)))
def test_a_barrier_ends_rounds_after_the_last_one_came(size, rounds):
    def program(comm):
        comm.platform.compute(1.0 * comm.rank)
        comm.Barrier()
        return comm.Wtime()

    assert sim.run(program, size, SLOW) == [exactly(size - 1 + rounds * ALPHA)] * size


# Groups, hosts.


def test_split_makes_a_group_a_colour_in_the_order_of_keys_then_ranks():
    def program(comm):
        group = comm.Split(comm.rank % 3, -(comm.rank // 4))
        names = np.zeros(group.size, int)
        names[group.rank] = comm.rank
        ALLREDUCE["tree"](group, names)
        return group.rank, names.tolist()

    groups = {0: [6, 0, 3], 1: [4, 7, 1], 2: [5, 2]}
    for rank, (place, names) in enumerate(sim.run(program, 8)):
        assert names == groups[rank % 3]
        assert names[place] == rank


@pytest.mark.parametrize(
    "host, hosts, odd",
    [
        (0, [0] * 5, [0, 0]),
        (1, [0, 1, 2, 3, 4], [0, 1]),
        (2, [0, 0, 1, 1, 2], [0, 1]),
    ],
)
def test_hosts_have_the_ranks_of_the_network(host, hosts, odd):
    """A group numbers hosts by its own lowest ranks."""

    def program(comm):
        return comm.platform.hosts(), comm.Split(comm.rank % 2, -comm.rank).hosts()

    found = sim.run(program, 5, sim.Uniform(host=host))
    assert [mine for mine, _ in found] == [hosts] * 5
    assert found[1][1] == odd
    with pytest.raises(BadInput, match="SHARED"):
        sim.run(lambda comm: comm.Split_type(99), 1)
