"""Broadcast, reduce-scatter, all-gather, and all-gather of parts of any length."""

import numpy as np
import pytest

from dml import sim
from dml.conformance.known_results import DTYPES, OPS, Case, inputs, lengths
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, all_gather, broadcast, reduce_scatter
from dml.wire.collectives.all_gather_parts import (
    all_gather_parts,
    dense_is_cheaper,
    gather_lengths,
)
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Rates
from dml.wire.plans.topology import chunks, rounds

SIZES = (*range(1, 10), 16, 17, 31)
NETWORKS = [(sim.Uniform(1e-6, 1e-9), 0), (sim.Uniform(1e-6, 1e-9, eager=0), 1)]


@pytest.mark.parametrize("network, seed", NETWORKS)
@pytest.mark.parametrize("size", SIZES)
def test_any_root_broadcasts_to_all_in_the_stated_rounds_and_words(size, network, seed):
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
        assert (matrix == 1).all()
        with pytest.raises(BadInput, match=f"rank {comm.rank}"):
            broadcast(comm, matrix[:, 0], 1)

    sim.run(program, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_gives_every_rank_its_chunk_of_the_total(size, dtype):
    def program(comm):
        for length in lengths(size):
            for name in ("sum", "min"):
                rows = inputs(Case(size, length, dtype, name))
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


FEW = range(1, 9)
NETWORK = sim.Uniform(alpha=1.3e-6, beta=0.7e-9, gamma=0.3e-9)


def uneven(size, seed):
    """Draw lengths of which some are 0; the first seeds have 0 alone, and one part."""
    draws = np.random.default_rng([size, seed]).integers(0, 9, size)
    return draws * (0, np.arange(size) == size // 2, draws % 3)[min(seed, 2)]


def part(rank, length):
    return (100 * rank + np.arange(length)).astype(np.float32)


@pytest.mark.parametrize("size", FEW)
def test_everyone_has_every_part_in_rank_order_by_the_words_of_a_ring(size):
    for seed in range(6):
        each = uneven(size, seed)
        want = np.concatenate([part(rank, n) for rank, n in enumerate(each)])

        def program(comm, each=each):
            mine = part(comm.rank, each[comm.rank])
            known = gather_lengths(comm, len(mine))
            assert np.array_equal(known, each)
            metered = Metered(comm)
            found = all_gather_parts(metered, mine, known)
            assert np.array_equal(mine, part(comm.rank, each[comm.rank]))
            assert found.dtype == mine.dtype
            return found.tobytes(), metered.bytes_sent // 4, metered.messages_sent

        # rank r does not send part r + 1, which has come round to it last
        words = (each.sum() - np.roll(each, -1)) * (size > 1)
        wanted = [(want.tobytes(), n, size - 1) for n in words.tolist()]
        for network, start in ((NETWORK, 0), (NETWORK._replace(eager=0), 2)):
            assert sim.run(program, size, network, start) == wanted


def seconds(size, program):
    """Return how long the slowest rank takes, once it knows what a first call asks."""

    def timed(comm):
        one = program(comm)
        one()
        comm.Barrier()
        start = comm.Wtime()
        one()
        return comm.Wtime() - start

    return max(sim.run(timed, size, NETWORK))


@pytest.mark.parametrize("length", (0, 1, 1000, 50_000))
@pytest.mark.parametrize("size", FEW)
def test_equal_parts_take_the_seconds_of_the_formula(size, length):
    each, mine = np.full(size, length), part(0, length)
    took = seconds(size, lambda comm: lambda: all_gather_parts(comm, mine, each))
    want = cost.gather_seconds(size, 4 * length * size, Rates(*NETWORK[:3]))
    assert took == pytest.approx(want, rel=1e-9, abs=0)


@pytest.mark.parametrize("name", ("ring", "butterfly", "star", "shared", "auto"))
@pytest.mark.parametrize("size", (2, 3, 8))
@pytest.mark.parametrize("length", (100, 30_000))
def test_dense_is_chosen_where_it_is_faster_by_the_virtual_clock(length, size, name):
    def reducing(comm):
        buffer = allocate(comm, length)
        return lambda: ALLREDUCE[name](comm, buffer)

    dense = seconds(size, reducing)
    for share in (0.01, 0.5, 2, 30):
        each = np.full(size, int(length * share))
        if not each.any():
            continue

        def gathering(comm, each=each):
            return lambda: all_gather_parts(comm, part(0, each[0]), each)

        def choosing(comm, each=each):
            return dense_is_cheaper(
                comm, name, allocate(comm, length), 4 * int(each.sum())
            )

        sparse = seconds(size, gathering)
        assert sim.run(choosing, size, NETWORK) == [dense < sparse] * size
    assert sim.run(choosing, 1) == [False]  # a rank alone gathers
