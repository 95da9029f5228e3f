"""A figure of what a completed matrix misses."""

import numpy as np

from dml.evaluation.residuals import MIN_ENTRIES, by_seen, residuals


def test_misses_are_grouped_by_powers_of_two_of_what_was_seen():
    seen = np.repeat([1, 2, 3, 0, 64], [10, MIN_ENTRIES, MIN_ENTRIES, 10, 3])
    misses = np.where(seen < 2, 3.0, np.where(seen == 2, 1.0, 7.0))
    xs, ys = by_seen(misses, seen)
    assert xs.tolist() == [0.5, 2.5]  # 64: too few
    assert ys.tolist() == [3, 5]


def test_few_ratings_are_drawn_too(tmp_path):
    residuals(tmp_path / "few", np.array([0.5]), np.array([4]))
    assert (tmp_path / "few.svg").stat().st_size > 0
