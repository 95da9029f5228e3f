"""Bins are exact order statistics of the whole table, for every split of its rows."""

import numpy as np
import pytest

from dml import sim
from dml.boosting import bins, keys
from dml.boosting.messages import grid, part
from dml.boosting.settings import Settings
from dml.wire.comm import Metered

ROWS, BINS = 500, 8


def columns(dtype):
    """Return columns: numbers, ties, few values, missing, constant, none at all."""
    rng = np.random.default_rng(1)
    x = np.empty((ROWS, 9), dtype)
    x[:, 0] = rng.standard_normal(ROWS) * 10.0 ** rng.integers(-30, 30, ROWS)
    x[:, 1] = np.round(3 * rng.standard_normal(ROWS))
    x[:, 2] = rng.integers(0, 5, ROWS)
    x[:, 3] = np.where(rng.random(ROWS) < 0.6, np.nan, rng.standard_normal(ROWS))
    x[:, 4] = -0.0
    x[:9, 4] = 0.0
    x[:, 5] = np.nan
    x[:, 6] = np.where(rng.random(ROWS) < 0.98, 0.0, rng.random(ROWS))
    x[:, 7] = np.where(rng.random(ROWS) < 0.7, 0.0, rng.standard_normal(ROWS))
    x[:, 8] = np.round(3 * rng.standard_normal(ROWS) ** 3)  # several rounds of ties
    return x


def made(x, size, cuts=None):
    """Return the bins of each of the ranks, and the words that they sent."""
    settings = Settings(bins=BINS)

    def program(comm):
        comm = Metered(comm)
        rows = cuts[comm.rank] if cuts else part(len(x), size, comm.rank)
        none = np.zeros(x.shape[1], bool)
        return bins.make_bins(grid(comm, "rows"), x[rows], settings, none), (
            comm.bytes_sent
        )

    return sim.run(program, size)


def expected_edges(column):
    """Return the edges by np.sort, and the numbers of keys that `words` counts."""
    values = np.sort(column[~np.isnan(column)]).astype(np.float64)
    distinct, counts = np.unique(values, return_counts=True)
    lower, wide = np.arange(len(distinct) - 1), (0, 0, 0)
    if len(distinct) > BINS:
        lower, wide = expected_lower(counts)
        lower = lower[lower < len(distinct) - 1]
    middle = distinct[lower] / 2 + distinct[lower + 1] / 2
    return np.where(middle < distinct[lower + 1], middle, distinct[lower]), wide


def expected_lower(counts):
    """Return the places of distinct values below an edge, and the three numbers."""
    own, around = np.zeros(len(counts), bool), set()
    statistics = frequent = 0
    while True:
        bins, rest = BINS - len(around), np.where(own, 0, counts)
        ranks = [-(-j * rest.sum() // bins) for j in range(1, bins)]
        found = np.searchsorted(np.cumsum(rest), np.array(ranks, int))
        lower = sorted(around | {*found.tolist()})
        new = {place for place in found.tolist() if rest[place] * bins >= rest.sum()}
        statistics, frequent = statistics + len(ranks), frequent + len(new)
        wider = around | {*new, *(place - 1 for place in new if place)}
        if not new or len(wider) >= BINS:
            return np.array(lower), (statistics, frequent, len(lower))
        own[[*new]], around = True, wider


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_keys_have_the_order_of_their_numbers(dtype):
    values = np.array([-np.inf, -3e38, -1, -1e-40, 0, 1e-40, 1, 3e38, np.inf], dtype)
    found = keys.keys_of(values)
    assert (np.diff(found.astype(object)) > 0).all()
    np.testing.assert_array_equal(keys.values_of(found), values)
    assert keys.keys_of(dtype([-0.0]))[0] == keys.keys_of(dtype([0.0]))[0]


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("size", (1, 2, 3, 5, 9, 16))
def test_edges_are_midpoints_of_order_statistics(size, dtype):
    x = columns(dtype)
    for found, _ in made(x, size):
        for f, column in enumerate(x.T):
            np.testing.assert_array_equal(found.of(f), expected_edges(column)[0])
            assert len(found.of(f)) < BINS
        assert found.missing.tolist() == np.isnan(x).any(axis=0).tolist()


def test_columns_with_many_ties_use_the_bins_that_they_have():
    rng = np.random.default_rng(2)
    scale = rng.integers(1, 9, 120)
    x = np.round(scale * rng.standard_normal((ROWS // 5, 120)) ** 3).astype(np.float32)
    x[: ROWS // 10, ::3] = np.arange(ROWS // 10)[:, None] % (2 + scale[::3])
    x[:, 0] = np.repeat(np.arange(9), [4, 20, 4, 20, 4, 20, 4, 20, 4])  # 8 edges
    for found, _ in made(x, 3):
        for f, column in enumerate(x.T):
            np.testing.assert_array_equal(found.of(f), expected_edges(column)[0])
            assert len(found.of(f)) < BINS


def test_ranks_without_rows_change_nothing():
    x = columns(np.float32)
    cuts = [slice(0, 0), slice(0, 499), slice(499, 499), slice(499, 500)]
    for found, _ in made(x, 4, cuts):
        for f, column in enumerate(x.T):
            np.testing.assert_array_equal(found.of(f), expected_edges(column)[0])
            assert len(found.of(f)) < BINS


@pytest.mark.parametrize("size", (1, 2, 3, 7))
@pytest.mark.parametrize("dtype, bits", [(np.float32, 32), (np.float64, 64)])
def test_the_counted_words_are_those_of_the_formula(size, dtype, bits):
    x = columns(dtype)
    counted = sum(sent for _, sent in made(x, size)) / 8
    if bits == 32:  # successors alone are sent as 8 bytes, counts are
        assert counted == int(counted)
    parts = [x[part(ROWS, size, r)] for r in range(size)]
    distinct = [
        [len(np.unique(p[:, f][~np.isnan(p[:, f])])) for p in parts]
        for f in range(x.shape[1])
    ]
    few = sum(max(each) <= BINS for each in distinct)
    wide = np.sum([expected_edges(column)[1] for column in x.T], axis=0).tolist()
    # and a word for `agree`
    formula = bins.words(size, len(x.T), few * BINS, bits, wide) + 2 * (size - 1)
    assert counted == formula


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_every_value_is_in_the_bin_of_the_edges_below_it(dtype):
    x = columns(dtype)
    found = made(x, 1)[0][0]
    for f in range(x.shape[1]):
        edges = found.of(f)
        # also numbers beyond float32, next to the edges, and without hints
        extremes = np.array([np.finfo(dtype).max, np.finfo(dtype).tiny, -0.0], dtype)
        near = np.concatenate([edges.astype(dtype), extremes, -extremes])
        column = np.concatenate([x[:, f], near, np.nextafter(near, dtype(1))])
        hints, values = bins.hints_of(edges), column.astype(np.float64)
        want = np.where(
            np.isnan(values), found.counts[f], np.searchsorted(edges, values)
        )
        for each in (hints, np.zeros_like(hints)):
            out = np.empty(len(column), np.uint8)
            bins.assign(column, edges, each, False, found.counts[f], out)
            np.testing.assert_array_equal(out, want)
        if dtype == np.float32 and len(edges):  # a hint is the bin of the least number
            finite = np.arange(0x80, 0xFF80, dtype=np.uint32)
            least = keys.values_of(finite << np.uint32(16))
            np.testing.assert_array_equal(hints[finite], np.searchsorted(edges, least))


def test_neighbours_without_a_number_between_them_are_divided():
    one, two = np.nextafter(1.0, 2.0), 1 + 2 * np.spacing(1.0)
    low, high = np.array([1.0, one]), np.array([one, two])
    # the midpoints are rounded to 1 and to `two`
    np.testing.assert_array_equal(bins.between(low, high), low)
    assert np.isfinite(bins.between(np.array([1e308]), np.array([1.7e308]))).all()
