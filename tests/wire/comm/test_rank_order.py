"""One rank goes first: the others come after it, and each gets its own result."""

import numpy as np
import pytest

from dml import sim
from dml.wire.comm import Metered, first_of_all, first_of_each_host
from dml.wire.comm.tags import Tag


def order(size, way):
    """Return the ranks in the order in which they called, and what they sent."""
    called = []

    def program(comm):
        comm = Metered(comm)
        found = way(comm, lambda: called.append(comm.rank) or comm.rank)
        assert found == comm.rank
        return comm.messages_sent, comm.bytes_sent

    return called, sim.run(program, size)


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("way", (first_of_all, first_of_each_host))
def test_rank_0_goes_before_all_others(size, way):
    called, sent = order(size, way)
    assert called[0] == 0
    assert sorted(called) == list(range(size))
    assert sent == [(size - 1, 0)] + [(0, 0)] * (size - 1)


@pytest.mark.parametrize("seed", range(4))
def test_the_lowest_rank_of_each_host_goes_before_the_others(seed):
    called = []

    def program(comm):
        assert comm.platform.hosts() == [0, 0, 0, 1, 1, 1, 2]
        comm = Metered(comm)
        first_of_each_host(comm, lambda: called.append(comm.rank))
        return comm.messages_sent

    sent = sim.run(program, 7, network=sim.Uniform(host=3), seed=seed)
    assert sent == [2, 0, 0, 2, 0, 0, 0]
    assert sorted(called) == list(range(7))
    for host in ((0, 1, 2), (3, 4, 5)):
        assert next(rank for rank in called if rank in host) == host[0]


def test_others_wait_until_the_first_is_done():
    def program(comm):
        def call():
            if comm.rank == 0:  # virtual time passes
                comm.Sendrecv(np.zeros(9), 0, Tag.RING, np.zeros(9), 0, Tag.RING)
            return comm.Wtime()

        return first_of_all(comm, call)

    first, *others = sim.run(program, 4, network=sim.Uniform(1.0, 0.0, 0.0))
    assert first > 0
    assert all(other > first for other in others)
