"""Rules that select vectors: literal oracles in float64, ties, copies, thresholds."""

from itertools import combinations

import numpy as np
import pytest

from dml.wire.reducers.robust import bulyan, estimate, krum, mda, multi_krum
from dml.wire.reducers.robust.distances import pairs
from dml.wire.reducers.robust.selection import narrowest, one_after_another, scores
from dml.wire.reducers.robust.threads import on_threads, serially
from tests.wire.reducers.robust.small import attacked, normal


def oracle_scores(rows, faulty):
    """Return Krum's scores as the paper defines them."""
    rows = rows.astype(float)
    found = []
    for i in range(len(rows)):
        distances = [
            ((rows[i] - rows[j]) ** 2).sum() for j in range(len(rows)) if j != i
        ]
        found.append(sum(sorted(distances)[: len(rows) - faulty - 2]))
    return np.array(found)


def oracle_bulyan(rows, faulty, scored_anew=True):
    """Return the vectors that Bulyan selects, in order."""
    left, selected = list(range(len(rows))), []
    order = np.argsort(oracle_scores(rows, faulty), kind="stable").tolist()
    while len(selected) < len(rows) - 2 * faulty:
        if not scored_anew:
            selected = order[: len(rows) - 2 * faulty]
            break
        kept = rows[left].astype(float)
        squares = ((kept[:, None] - kept) ** 2).sum(axis=2)
        nearest = max(1, len(left) - faulty - 2)
        sums = [
            np.sort(np.delete(squares[i], i))[:nearest].sum() for i in range(len(left))
        ]
        selected.append(left.pop(int(np.argmin(sums))))
    return selected


# Small vectors of whole numbers: distances are exact, and many are equal.
SMALL = [
    np.random.default_rng(seed).integers(-9, 10, (count, length)).astype(np.float32)
    for seed in range(150)
    for count, length in ((7, 1), (8, 2), (9, 3))
]


def test_krum_selects_the_first_vector_of_least_score():
    for rows in SMALL:
        for faulty in (0, 1, 2):
            best = np.argmin(oracle_scores(rows, faulty))
            assert np.array_equal(estimate(krum(faulty), rows), rows[best])


def test_multi_krum_is_the_mean_of_the_best():
    for rows in SMALL:
        order = np.argsort(oracle_scores(rows, 2), kind="stable")[: len(rows) - 2]
        found = estimate(multi_krum(2), rows)
        np.testing.assert_allclose(found, rows[order].mean(axis=0), atol=1e-5)


def test_bulyan_scores_anew_after_each_selection():
    differs = 0
    for rows in SMALL:
        squares = pairs(rows, serially)
        expected = oracle_bulyan(rows, 1)
        assert one_after_another(squares, 1).tolist() == expected
        differs += set(oracle_bulyan(rows, 1, scored_anew=False)) != set(expected)
        kept = np.sort(rows[expected], axis=0)
        middle = np.median(kept, axis=0)
        count = len(expected) - 2
        windows = [kept[k : k + count] for k in range(3)]
        reach = [np.maximum(middle - w[0], w[-1] - middle) for w in windows]
        best = np.argmin(reach, axis=0)
        means = np.array([w.mean(axis=0) for w in windows])
        found = np.take_along_axis(means, best[None], axis=0)[0]
        np.testing.assert_allclose(estimate(bulyan(1), rows), found, atol=1e-5)
    assert differs > 10


def test_mda_has_the_least_diameter_of_all_subsets():
    cases = [(rows, faulty) for rows in SMALL[::7] for faulty in (0, 1, 2, 3)]
    cases += [(attacked(14, 4, 3, seed), 4) for seed in range(7)]
    for rows, faulty in cases:
        squares = pairs(rows, serially)
        count = len(rows) - faulty
        least = min(
            squares[np.ix_(subset, subset)].max()
            for subset in combinations(range(len(rows)), count)
        )
        kept = narrowest(squares, faulty)
        assert len(set(kept.tolist())) == count
        assert squares[np.ix_(kept, kept)].max() == least
        found = estimate(mda(faulty), rows)
        np.testing.assert_allclose(found, rows[kept].mean(axis=0), rtol=1e-4, atol=1e-5)


def test_mda_of_twenty_vectors_is_found_without_all_subsets():
    rows = normal(40, 50)
    rows[30:] += 3
    assert narrowest(pairs(rows, serially), 10).tolist() == list(range(30))


@pytest.mark.parametrize("z", (1.15, 1.20, 1.30, 1.35))
def test_krum_is_captured_below_its_threshold(z):
    """Four copies of μ + zσ are selected iff z < 1.243, for n = 20 and f = 4."""
    assert pytest.approx(2 * 14, rel=1e-3) == 11 * (1 + 1.243**2)
    rows = normal(20, 30_000, 5)
    rows[16:] = z
    selected = estimate(krum(4), rows)
    assert (selected == z).all() == (z < 1.243)


def test_a_copy_of_a_vector_is_another_vector():
    """Two copies have the distance 0, which counts as that of a neighbour."""
    rows = np.array([[0], [0], [5], [6], [8], [20]], np.float32)
    squares = (rows - rows.T).astype(float) ** 2
    # n-f-2 = 3 neighbours: the copy, and two others
    assert scores(squares, 1)[:2].tolist() == [0 + 25 + 36, 0 + 25 + 36]


def test_large_means_keep_the_distances():
    rows = normal(6, 100_000) / 16
    shifted = (rows + 1000).astype(np.float32)
    exact = [[((a.astype(float) - b) ** 2).sum() for b in shifted] for a in shifted]
    np.testing.assert_allclose(pairs(shifted, serially), exact, rtol=1e-5)
    chosen = np.argmin(scores(pairs(rows, serially), 1))
    assert np.array_equal(estimate(krum(1), shifted), shifted[chosen])


@pytest.mark.parametrize("scale", (1e-30, 1e-15, 1, 1e15, 1e30, 3e37))
def test_selections_do_not_depend_on_the_scale(scale):
    rows = normal(9, 3000)
    squares = pairs(rows, serially)
    scaled = (rows * np.float32(scale)).astype(np.float32)
    np.testing.assert_allclose(pairs(scaled, serially) / scale**2, squares, rtol=1e-5)
    chosen = np.argmin(scores(squares, 2))
    assert np.array_equal(estimate(krum(2), scaled), scaled[chosen])


def test_threads_do_not_change_distances():
    rows = normal(6, 400_001)
    found = [pairs(rows, run) for run in (serially, on_threads)]
    assert found[0].tobytes() == found[1].tobytes()
    assert not np.diag(found[0]).any()
    assert np.array_equal(found[0], found[0].T)
