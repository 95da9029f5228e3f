"""Averages of pairs: the sum is conserved, to the last bit where numbers allow it."""

import numpy as np
import pytest

from dml import sim
from dml.wire.averaging.pairs import pair_averages
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.sides import sides

ROUNDS, LENGTH = 8, 40


def averaged(comm, name, scale, size, changes_RxN):
    """Return this rank's values, and the number of its averages.

    A rank adds the changes of a round, and computes for a time of its own.
    """
    side = sides(topology(name, size))[comm.rank]
    values = np.zeros(LENGTH)
    pairs = pair_averages(comm, side, values, seed=2)
    generator = np.random.default_rng(comm.rank)
    for t, change in enumerate(changes_RxN):
        comm.platform.compute(scale[comm.rank] * generator.uniform())
        values += change
        pairs.exchange(values, t)
    pairs.settle(values)
    comm.Barrier()
    return values, pairs.reset()


@pytest.mark.parametrize("name, size", [("complete", 5), ("ring", 6), ("star", 4)])
@pytest.mark.parametrize("eager", [65536, 16])
def test_the_sum_of_integers_is_changed_by_updates_only(name, size, eager):
    generator = np.random.default_rng(size)
    changes_PxRxN = generator.integers(-99, 99, (size, ROUNDS, LENGTH)).astype(float)
    scale = 10.0 ** -np.arange(size)  # speeds of ranks differ by orders of magnitude
    found = sim.run(
        lambda comm: averaged(comm, name, scale, size, changes_PxRxN[comm.rank]),
        size,
        sim.Uniform(eager=eager),
    )
    values = np.array([values for values, _ in found])
    averages = sum(counts[0] for _, counts in found)
    assert averages >= size - 1
    # halves of integers, of which at most ROUNDS per rank are nested: exact in float64
    assert np.array_equal(values.sum(0), changes_PxRxN.sum((0, 1)))
    assert not np.array_equal(values, changes_PxRxN.sum(1))


def test_buffers_without_values_end_without_a_message():
    def program(comm):
        side, values = sides(topology("complete", 3))[comm.rank], np.empty(0)
        pairs = pair_averages(comm, side, values)
        for t in range(3):
            pairs.exchange(values, t)
        pairs.settle(values)
        return pairs.reset()

    assert sim.run(program, 3) == [(0, 0)] * 3
