"""Broadcast, reduce-scatter and all-gather."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, all_gather, broadcast, reduce_scatter
from dml.wire.comm import Metered
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import chunks, rounds
from tests.wire.collectives.conformance import DTYPES, OPS, Case, given, lengths
from tests.wire.collectives.spy import Spy

SIZES = (*range(1, 10), 16, 17, 31)


@pytest.mark.parametrize("size", SIZES)
def test_any_root_broadcasts_to_all(size):
    def program(comm):
        found = []
        for root in range(size):
            for length in (0, 1, 13):
                buffer = np.arange(length) + 1000.0 * comm.rank
                broadcast(comm, buffer, root)
                found.append(np.array_equal(buffer, np.arange(length) + 1000.0 * root))
        return all(found)

    assert sim.run(program, size) == [True] * size
    assert sim.run(program, size, sim.Uniform(eager=0), seed=1) == [True] * size


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_takes_the_rounds_and_words_that_it_says(size):
    network = sim.Uniform(1e-6, 1e-9)

    def program(comm):
        metered = Metered(comm)
        broadcast(metered, np.zeros(1000, np.float32), size // 2)
        return comm.Wtime(), metered.bytes_sent

    found = sim.run(program, size, network)
    assert sum(sent for _, sent in found) == (size - 1) * 4000
    took = rounds(size) * (1e-6 + 4000 * 1e-9)
    assert max(clock for clock, _ in found) == pytest.approx(took, rel=1e-9)


def test_broadcast_copies_many_axes_and_refuses_what_is_not_contiguous():
    def program(comm):
        matrix = np.full((3, 4), comm.rank)
        broadcast(comm, matrix, 1)
        with pytest.raises(BadInput, match=f"rank {comm.rank}"):
            broadcast(comm, matrix[:, 0], 1)
        return matrix.tolist()

    assert sim.run(program, 3) == [[[1] * 4] * 3] * 3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_gives_every_rank_its_chunk_of_the_total(size, dtype):
    def program(comm):
        found = []
        for length in lengths(size):
            for name in ("sum", "min"):
                case = Case(size, length, dtype, name)
                rows = given(case)
                buffer = rows[comm.rank].copy()
                mine = reduce_scatter(comm, buffer, OPS[name])
                part = chunks(length, size)[comm.rank]
                want = OPS[name].reduce(rows[:, part], axis=0, dtype=dtype)
                found.append(np.array_equal(mine, want))
                found.append(np.array_equal(buffer[part], want))  # it is a view
        return all(found)

    assert sim.run(program, size) == [True] * size


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_gives_everyone_every_chunk(size):
    def program(comm):
        found = []
        for length in lengths(size):
            buffer = np.full(length, -1.0)
            parts = chunks(length, size)
            buffer[parts[comm.rank]] = comm.rank + 0.5
            all_gather(comm, buffer)
            want = np.full(length, -1.0)
            for rank, part in enumerate(parts):
                want[part] = rank + 0.5
            found.append(np.array_equal(buffer, want))
        return all(found)

    assert sim.run(program, size) == [True] * size
    assert sim.run(program, size, sim.Uniform(eager=0), seed=2) == [True] * size


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_then_all_gather_is_an_allreduce_of_twice_half_the_words(size):
    case = Case(size, 1009, "float32", "sum", True)

    def program(comm):
        metered = Metered(comm)
        buffer = given(case)[comm.rank].copy()
        reduce_scatter(metered, buffer)
        half = metered.bytes_sent
        all_gather(metered, buffer)
        return half, metered.bytes_sent, buffer.tobytes()

    found = sim.run(program, size)
    assert sum(half for half, _, _ in found) == (size - 1) * 1009 * 4
    assert sum(both for _, both, _ in found) == 2 * (size - 1) * 1009 * 4
    assert len({bits for _, _, bits in found}) == 1
    off = np.abs(np.frombuffer(found[0][2], "f4") - given(case).astype(float).sum(0))
    # (p-1) roundings of partial sums (Higham 2002, eq. 4.4)
    bound = (size - 1) * np.finfo("f4").eps * np.abs(given(case).astype(float)).sum(0)
    assert (off <= bound).all()


def test_metered_counts_messages_and_bytes_by_operation_and_peer():
    def program(comm):
        spy = Spy(comm)
        ahead, behind = (comm.rank + 1) % 3, (comm.rank - 1) % 3
        here, there = np.zeros(10), np.empty(10)
        spy.Sendrecv(here, ahead, Tag.RING, there, behind, Tag.RING)
        request = spy.Isend(here[:3], ahead, Tag.RING)
        spy.Recv(there[:3], behind, Tag.RING)
        request.Wait()
        if comm.rank == 0:
            spy.Send(here[:1], 2, Tag.STAR)
            spy.Send(here[:2], 2, Tag.STAR)
        elif comm.rank == 2:
            spy.Recv(there[:1], 0, Tag.STAR)
            spy.Recv(there[:2], 0, Tag.STAR)
        return dict(spy.messages), dict(spy.bytes)

    found = sim.run(program, 3)
    assert found[0][0] == {("Sendrecv", 1): 1, ("Isend", 1): 1, ("Send", 2): 2}
    assert found[0][1] == {("Sendrecv", 1): 80, ("Isend", 1): 24, ("Send", 2): 24}
    assert found[1] == (
        {("Sendrecv", 2): 1, ("Isend", 2): 1},
        {("Sendrecv", 2): 80, ("Isend", 2): 24},
    )


def test_metered_groups_count_into_their_origin_by_its_ranks():
    def program(comm):
        spy = Spy(comm)
        group = spy.Split(comm.rank % 2, -comm.rank)
        inner = group.Dup()
        before = spy.bytes.copy()
        ALLREDUCE["star"](inner, np.zeros(5))
        return dict(spy.bytes - before), group.names.tolist(), spy.bytes_sent

    found = sim.run(program, 4)
    # Ranks 2 and 3 come first in their groups, so they are the masters.
    assert found[2] == ({("Send", 0): 40}, [2, 0], 40)
    assert found[0] == ({("Send", 2): 40}, [2, 0], 40)
    assert found[1] == ({("Send", 3): 40}, [3, 1], 40)


def test_a_ring_sends_to_its_right_neighbour_only():
    def program(comm):
        spy = Spy(comm)
        ALLREDUCE["ring"](spy, np.zeros(100_000))
        return {peer for _, peer in spy.messages}

    assert sim.run(program, 5) == [{1}, {2}, {3}, {4}, {0}]


@pytest.mark.parametrize("name", ("shared", "native"))
def test_no_payload_of_shared_and_native_is_in_messages(name):
    def program(comm):
        spy = Spy(comm)
        ALLREDUCE[name](spy, np.zeros(100_000))
        return spy.messages_sent

    assert sim.run(program, 4) == [0] * 4


def test_hierarchical_sends_less_across_hosts_than_a_ring():
    """Hosts of four: n/4 a rank goes out, twice 7/8 n in a ring over all."""

    def program(comm):
        sent = []
        for name in ("hierarchical", "ring"):
            spy = Spy(comm)
            ALLREDUCE[name](spy, np.zeros(8000, np.float32))
            before = spy.bytes.copy()
            ALLREDUCE[name](spy, np.zeros(8000, np.float32))
            beyond = (spy.bytes - before).items()
            sent.append(
                sum(b for (_, peer), b in beyond if peer // 4 != comm.rank // 4)
            )
        return sent

    hierarchical, ring = np.array(sim.run(program, 8, sim.Uniform(host=4))).T
    assert hierarchical.tolist() == [8000] * 8  # 2 (G-1)/G · n/4 words
    assert ring.max() == 56_000
