"""Asynchronous strategies on real ranks of unequal speed end, and conserve the sum."""

import numpy as np

from tests.mpi.asynchronous_main import LENGTH


def test_real_ranks_of_unequal_speed_average_and_train(mpirun, tmp_path):
    size = 3
    ended = mpirun(size, "asynchronous_main", tmp_path / "rank")
    assert (ended.code, ended.err) == (0, "")
    rows = [(tmp_path / f"rank{rank}").read_text().split() for rank in range(size)]
    sums, averages, numbers, distances, others, last = np.array(rows, float).T
    # integers times powers of two: exact
    assert sums.sum() == LENGTH * sum((8 - rank) * (1 + rank) for rank in range(size))
    assert averages.sum() >= 1  # of the one rank that begins exchanges
    assert (numbers == 60).all() and (others == 60).all()
    assert distances.max() < 0.5 and last.max() < 0.5
