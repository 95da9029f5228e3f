"""The benchmark of all-reduces checks their results."""

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE, tree_allreduce
from dml.wire.collectives.benchmark import benchmark
from dml.wire.comm import Metered


def zeros(comm, buffer, op=np.add):
    buffer[...] = 0


def last_word_twice(comm, buffer, op=np.add):
    tree_allreduce(comm, buffer, op)
    buffer[-1:] *= 2


def rank_0_only(comm, buffer, op=np.add):
    if comm.rank == 0:
        buffer[...] = 0


def run(allreduce, dtype, length, p):
    def program(comm):
        buffer = np.zeros(length, dtype)
        return benchmark(Metered(comm), {"tried": allreduce}, buffer, 1)

    return sim.run(program, p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.complex64])
@pytest.mark.parametrize("length, p", [(0, 3), (1, 1), (1, 5), (7, 3), (3, 40)])
@pytest.mark.parametrize("name", ["ring", "butterfly", "star"])
def test_correct_sums_pass(name, dtype, length, p):
    (row,) = run(ALLREDUCE[name], dtype, length, p)[0]
    assert row["sha256"]


@pytest.mark.parametrize(
    "allreduce, message",
    [
        (zeros, "expected the sum of all ranks' words, but word 0 differs"),
        (last_word_twice, "expected the sum of all ranks' words, but word 6 differs"),
        (rank_0_only, "expected equal bits on all ranks"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_wrong_sums_are_refused(allreduce, message, dtype):
    with pytest.raises(RuntimeError, match=message):
        run(allreduce, dtype, 7, 3)
