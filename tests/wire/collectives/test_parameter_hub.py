"""Parameter Hub: the bits of a serial update, by messages and in shared memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.update.fused_adam import FusedAdam
from dml.wire.collectives.parameter_hub import hub_update
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate
from dml.wire.plans.topology import chunks

few = settings(max_examples=30)


def gradient(length, rank, number):
    rng = np.random.default_rng([length, rank, number])
    return rng.standard_normal(length).astype(np.float32)


def serial(length, size, updates):
    adam, params = FusedAdam(length), np.ones(length, np.float32)
    for number in range(updates):
        adam.begin(size)
        terms = [gradient(length, rank, number) for rank in range(size)]
        adam.update(0, terms, [params])
    return params


def trained(length, size, segment, registered, updates=2):
    """Return parameters and bytes sent of each rank."""

    def program(comm):
        comm = Metered(comm)
        make = allocate if registered else lambda comm, n: np.zeros(n, np.float32)
        grads, params = make(comm, length), make(comm, length)
        params[:] = 1
        own = chunks(length, size)[comm.rank]
        adam = FusedAdam(own.stop - own.start)
        for number in range(updates):
            grads[:] = gradient(length, comm.rank, number)
            adam.begin(size)
            hub_update(comm, grads, params, adam.update, segment)
        unchanged = (
            grads.tobytes() == gradient(length, comm.rank, updates - 1).tobytes()
        )
        return params.copy(), comm.bytes_sent, unchanged

    return sim.run(program, size)


@few
@given(data=st.data())
def test_all_ranks_have_the_bits_of_a_serial_update(data):
    length = data.draw(st.integers(0, 200), "length")
    size = data.draw(st.integers(1, 3), "size")
    segment = data.draw(st.integers(1, 300), "segment")
    expected = serial(length, size, 2).tobytes()
    for params, _, unchanged in trained(
        length, size, segment, data.draw(st.booleans(), "registered")
    ):
        assert params.tobytes() == expected
        assert unchanged


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_and_parameters_of_the_other_parts_are_sent_once(size):
    length = 12 * size
    sent = 2 * (size - 1) * length // size * 4
    results = trained(length, size, 16, registered=False, updates=1)
    assert [nbytes for _, nbytes, _ in results] == [sent] * size
    results = trained(length, size, 16, registered=True, updates=1)
    assert [nbytes for _, nbytes, _ in results] == [0] * size
