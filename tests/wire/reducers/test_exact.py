import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.buffers import layout
from dml.wire.reducers.exact import exact


@pytest.mark.parametrize("name", ALLREDUCE)
def test_the_exact_reducer_is_the_all_reduce_and_keeps_no_state(name):
    def program(comm):
        terms = np.random.default_rng(comm.rank).standard_normal(65).astype(np.float32)
        reducer, plain = exact(ALLREDUCE[name]), terms.copy()
        ALLREDUCE[name](comm, plain)
        state = reducer.init(layout({"w": terms[:64]}))
        state = reducer.reduce(comm, terms, state)
        return state, terms.tobytes() == plain.tobytes()

    assert sim.run(program, 3) == [(None, True)] * 3
