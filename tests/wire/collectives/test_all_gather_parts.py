"""Parts of any length reach everyone, at the cost that chooses sparse or dense."""

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import (
    all_gather_parts,
    dense_is_cheaper,
    lengths,
)
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Rates

SIZES = range(1, 9)
NETWORK = sim.Uniform(alpha=1.3e-6, beta=0.7e-9, gamma=0.3e-9)


def uneven(size, seed):
    """Draw lengths of which some are 0; the first seeds have 0 alone, and one part."""
    draws = np.random.default_rng([size, seed]).integers(0, 9, size)
    return draws * (0, np.arange(size) == size // 2, draws % 3)[min(seed, 2)]


def part(rank, length):
    return (100 * rank + np.arange(length)).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_everyone_has_every_part_in_rank_order_by_the_words_of_a_ring(size):
    for seed in range(6):
        each = uneven(size, seed)
        want = np.concatenate([part(rank, n) for rank, n in enumerate(each)])

        def program(comm, each=each):
            mine = part(comm.rank, each[comm.rank])
            known = lengths(comm, len(mine))
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
@pytest.mark.parametrize("size", SIZES)
def test_equal_parts_take_the_seconds_of_the_formula(size, length):
    each, mine = np.full(size, length), part(0, length)
    took = seconds(size, lambda comm: lambda: all_gather_parts(comm, mine, each))
    want = cost.gather_seconds(size, 4 * length * size, Rates(*NETWORK[:3]))
    assert took == pytest.approx(want, rel=1e-9, abs=0)


@pytest.mark.parametrize("name", ("ring", "butterfly", "star", "shared", "auto"))
@pytest.mark.parametrize("size", (2, 3, 8))
@pytest.mark.parametrize("length", (100, 30_000))
def test_dense_is_chosen_where_the_virtual_clock_says_so(length, size, name):
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
