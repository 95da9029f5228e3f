"""Sums of parts of a buffer, each on its own rank."""

import numpy as np
import pytest

from dml.sim.run import run
from dml.wire.collectives.star import star_allreduce
from dml.wire.collectives.sum_parts import sum_parts
from dml.wire.comm import Metered


@pytest.mark.parametrize(
    "edges", [[0, 10], [0, 3, 10], [0, 0, 10], [0, 4, 4, 10], [0, 1, 5, 9, 10]]
)
def test_a_rank_has_the_bits_of_the_star_in_its_part_and_others_are_unchanged(edges):
    parts = [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]

    def program(comm):
        metered = Metered(comm)
        values = np.random.default_rng(comm.rank).standard_normal(10)
        buffer = values.astype(np.float32)
        expected, before = buffer.copy(), buffer.copy()
        star_allreduce(comm, expected)
        sum_parts(metered, buffer, parts)
        own = parts[comm.rank]
        before[own] = expected[own]
        assert np.array_equal(buffer, before)
        assert metered.bytes_sent == 4 * (10 - (own.stop - own.start))

    run(program, len(parts))


def test_other_operations_and_types():
    def program(comm):
        buffer = np.arange(6) * (comm.rank + 1)
        sum_parts(comm, buffer, [slice(0, 2), slice(2, 6)], np.maximum)
        return buffer.tolist()

    assert run(program, 2) == [[0, 2, 2, 3, 4, 5], [0, 2, 4, 6, 8, 10]]
