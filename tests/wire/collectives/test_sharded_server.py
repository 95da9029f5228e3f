"""The all-reduce by a sharded server."""

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives.sharded_server import server_allreduce
from dml.wire.collectives.star import star_allreduce
from dml.wire.comm import Metered


def reduced(allreduce, size, length, op, dtype):
    """Return the bytes of the result of each rank, and the elements sent by all."""

    def program(comm):
        metered, rng = Metered(comm), np.random.default_rng(comm.rank)
        buffer = (100 * rng.standard_normal(length)).astype(dtype)
        allreduce(metered, buffer, op)
        return buffer.tobytes(), metered.bytes_sent // buffer.itemsize

    results = sim.run(program, size)
    return [result for result, _ in results], sum(sent for _, sent in results)


@pytest.mark.parametrize("size, length", [(1, 5), (2, 0), (3, 2), (4, 33), (5, 1000)])
@pytest.mark.parametrize("op", [np.add, np.maximum])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_bits_are_those_of_the_star(size, length, op, dtype):
    results, words = reduced(server_allreduce, size, length, op, dtype)
    assert results == reduced(star_allreduce, size, length, op, dtype)[0]
    assert words == 2 * (size - 1) * length


def test_seconds_are_those_of_the_docstring():
    p, n = 6, 600_000
    network = sim.Uniform(alpha=1e-5, beta=1e-9, gamma=1e-10)

    def program(comm):
        server_allreduce(comm, np.zeros(n, np.float32))
        return comm.Wtime()

    moved = (p - 1) / p * 4 * n
    predicted = 2 * (p - 1) * 1e-5 + moved * (2e-9 + 1e-10)
    assert max(sim.run(program, p, network)) == pytest.approx(predicted)
