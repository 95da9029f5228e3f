"""A broadcast in pieces on virtual ranks: values, words and time of its formula."""

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import swarm_broadcast
from dml.wire.comm import Metered
from dml.wire.plans import swarm

ALPHA, BETA = 1e-3, 1e-6
NETWORK = sim.Uniform(ALPHA, BETA, 0)


def run(size, length, root, pieces):
    """Return the buffers, the seconds and the words of all ranks."""

    def program(comm):
        metered = Metered(comm)
        buffer = np.arange(length) + 10_000.0 * comm.rank
        swarm_broadcast(metered, buffer, root, pieces)
        return buffer, comm.Wtime(), metered.bytes_sent // 8

    return zip(*sim.run(program, size, NETWORK), strict=True)


@pytest.mark.parametrize("size", (1, 2, 3, 4, 5, 6, 8, 9, 11))
@pytest.mark.parametrize("length, pieces", ((0, 4), (3, 8), (100, 7)))
def test_all_ranks_have_the_values_of_any_root_and_receive_each_word_once(
    size, length, pieces
):
    root = size // 2
    buffers, _, words = run(size, length, root, pieces)
    for buffer in buffers:
        assert (buffer == np.arange(length) + 10_000.0 * root).all()
    assert sum(words) == (size - 1) * length


@pytest.mark.parametrize("size, above", ((2, 0), (3, 0), (5, 0), (17, 0), (8, 1)))
def test_the_time_is_that_of_the_least_rounds(size, above):
    _, seconds, _ = run(size, 800, 1, pieces=8)
    rounds = swarm.least_rounds(8, size - 1) + above
    assert max(seconds) == pytest.approx(rounds * (ALPHA + 800 * BETA))
