"""All ranks of a host see one vector, and no other host does."""

import numpy as np
import pytest

from dml import sim
from dml.wire.memory.shared import share
from dml.wire.messages import Metered


@pytest.mark.parametrize("host", (0, 1, 2, 3))
@pytest.mark.parametrize("size", (1, 2, 5, 6))
@pytest.mark.parametrize("dtype", (np.float32, np.uint16, np.float64))
def test_what_a_rank_writes_its_host_reads(size, host, dtype):
    def program(comm):
        vector = share(Metered(comm), size, dtype)
        assert vector.dtype == dtype and vector.tolist() == [0] * size
        comm.Barrier()
        vector[comm.rank] = comm.rank + 1
        comm.Barrier()
        return vector.tolist()

    found = sim.run(program, size, sim.Uniform(host=host))
    for rank, seen in enumerate(found):
        mine = [r // (host or size) == rank // (host or size) for r in range(size)]
        assert seen == [(r + 1) * here for r, here in enumerate(mine)]


def test_two_vectors_are_apart_and_may_be_empty():
    def program(comm):
        one, other, none = share(comm, 3), share(comm, 3), share(comm, 0)
        assert len(none) == 0
        if comm.rank:
            one[:], other[:] = 1, 2
        comm.Barrier()
        return one.tolist() + other.tolist()

    assert sim.run(program, 3) == [[1] * 3 + [2] * 3] * 3
