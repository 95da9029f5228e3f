"""One rank goes first: the others come after it, and each gets its own result."""

import numpy as np
import pytest

from dml import sim
from dml.wire.comm import Metered, first_of_all, first_of_each_host
from dml.wire.comm.tags import Tag

HOSTS = {  # the ranks of which the first one goes first
    first_of_all: [range(7)],
    first_of_each_host: [(0, 1, 2), (3, 4, 5), (6,)],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", HOSTS)
def test_the_lowest_rank_of_each_host_goes_before_the_others(way, seed):
    called = []

    def program(comm):
        assert comm.platform.hosts() == [0, 0, 0, 1, 1, 1, 2]
        comm = Metered(comm)
        assert way(comm, lambda: called.append(comm.rank) or comm.rank) == comm.rank
        return comm.messages_sent, comm.bytes_sent

    sent = sim.run(program, 7, network=sim.Uniform(host=3), seed=seed)
    assert sorted(called) == list(range(7))
    for host in HOSTS[way]:
        assert next(rank for rank in called if rank in host) == host[0]
        assert [sent[rank] for rank in host] == [(len(host) - 1, 0)] + [(0, 0)] * (
            len(host) - 1
        )


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
