"""A buffer without content takes the same time as one with, and no memory."""

import tracemalloc

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
@pytest.mark.parametrize("size", (1, 4, 7))
def test_a_phantom_takes_every_allreduce_as_long_as_a_buffer(name, size):
    def clocks(make):
        def program(comm):
            ALLREDUCE[name](comm, make())
            return comm.Wtime()

        return sim.run(program, size)

    real = clocks(lambda: np.ones(100_003, np.float32))
    assert clocks(lambda: sim.Phantom(400_012, np.float32)) == real
    assert size == 1 or max(real) > 0


def test_a_terabyte_on_every_rank_takes_no_memory():
    def program(comm):
        buffer = sim.Phantom(1 << 40, np.float32)
        ALLREDUCE["ring"](comm, buffer, segment=1 << 60)
        return comm.Wtime(), len(buffer), buffer.nbytes

    tracemalloc.start()
    took, length, nbytes = sim.run(program, 16)[0]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 22
    assert took > 2 * 15 / 16 * (1 << 40) * 1e-9
    assert (length, nbytes) == (1 << 38, 1 << 40)


def test_a_phantom_and_a_buffer_exchange_their_lengths_alone():
    def program(comm):
        if comm.rank == 0:
            comm.Send(sim.Phantom(16), 1)
            comm.Recv(into := sim.Phantom(16), 1)
            return np.asarray(into)[0]
        comm.Recv(buffer := np.ones(2), 0)
        comm.Send(np.ones(2), 0)
        return buffer.tolist()

    assert sim.run(program, 2) == [0, [0.0, 0.0]]
