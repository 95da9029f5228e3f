"""Broadcast, reduce-scatter and all-gather."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import all_gather, broadcast, reduce_scatter
from dml.wire.comm import Metered
from dml.wire.plans.topology import chunks, rounds
from tests.wire.collectives.conformance import DTYPES, OPS, Case, given, lengths

SIZES = (*range(1, 10), 16, 17, 31)
NETWORKS = [(sim.Uniform(1e-6, 1e-9), 0), (sim.Uniform(1e-6, 1e-9, eager=0), 1)]


@pytest.mark.parametrize("network, seed", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_any_root_broadcasts_to_all_in_the_rounds_and_words_that_it_says(
    size, network, seed
):
    def program(comm):
        for root in range(size):
            for length in (0, 1, 13):
                buffer = np.arange(length) + 1000.0 * comm.rank
                broadcast(comm, buffer, root)
                assert np.array_equal(buffer, np.arange(length) + 1000.0 * root)
        metered = Metered(comm)
        comm.Barrier()
        start = comm.Wtime()
        broadcast(metered, np.zeros(1000, np.float32), size // 2)
        return comm.Wtime() - start, metered.bytes_sent

    seconds, sent = zip(*sim.run(program, size, network, seed), strict=True)
    assert sum(sent) == (size - 1) * 4000
    took = rounds(size) * (network.alpha + 4000 * network.beta)
    assert max(seconds) == pytest.approx(took, rel=1e-9)


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
        for length in lengths(size):
            for name in ("sum", "min"):
                rows = given(Case(size, length, dtype, name))
                buffer = rows[comm.rank].copy()
                mine = reduce_scatter(comm, buffer, OPS[name])
                part = chunks(length, size)[comm.rank]
                want = OPS[name].reduce(rows[:, part], axis=0, dtype=dtype)
                assert np.array_equal(mine, want)
                assert np.array_equal(buffer[part], want)  # it is a view

    sim.run(program, size)


@pytest.mark.parametrize("network, seed", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_all_gather_gives_everyone_every_chunk(size, network, seed):
    def program(comm):
        for length in lengths(size):
            parts = chunks(length, size)
            want = np.repeat(
                np.arange(size), [part.stop - part.start for part in parts]
            )
            buffer = np.full(length, -1)
            buffer[parts[comm.rank]] = comm.rank
            all_gather(comm, buffer)
            assert np.array_equal(buffer, want)

    sim.run(program, size, network, seed)


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
