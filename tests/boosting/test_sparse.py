"""Sparse tables have the model and the words of the dense table."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from dml import sim
from dml.boosting import Data, bins, keys, share, train
from dml.boosting.bins import make_bins
from dml.boosting.estimators import BoostingClassifier
from dml.boosting.messages import grid, part
from dml.boosting.sparse import bin_sparse, canonical
from dml.boosting.table import located, make_table
from dml.types import BadInput
from dml.wire.comm import Metered
from tests.boosting.tables import CATEGORY, settings, table, trained
from tests.boosting.test_bins import expected_edges

ZEROS = 0.7  # share of the values


def zeros(loss="squared", rows=400, seed=0, dtype=np.float32):
    """Return a table with zeros in all columns but one, and its targets."""
    x, y = table(loss, rows, seed, dtype)
    rng = np.random.default_rng(seed)
    none = rng.random(x.shape) < ZEROS
    none[:, 2] = False  # and a column without a zero
    x[none] = rng.choice(np.array([0.0, -0.0], dtype), none.sum())
    x[x == 0] *= 1
    x[:, 2] = np.abs(x[:, 2]) + 0.5
    return np.column_stack([x, np.zeros(rows, dtype)]), y


CASES = {
    "plain": ("logistic", {}),
    "wide columns": ("squared", {"bins": 5, "min_rows": 1}),
    "categories": ("softmax", {"categories": (CATEGORY, 5), "min_rows": 1}),
    "constraints": ("squared", {"monotone": (1, 0, 0, 0, -1, 0, 0, 0)}),
    "samples": ("logistic", {"row_share": 0.6, "column_share": 0.5}),
    "a vote": ("logistic", {"split": "vote", "shards": 6, "top": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_a_sparse_table_has_the_hash_of_the_dense_one(case, dtype):
    loss, changes = CASES[case]
    x, y = zeros(loss, dtype=dtype)
    if "categories" in changes:
        x[:, 5] = np.abs(x[:, 5])
    other, y_other = zeros(loss, 50, 1, dtype)
    other[:, 5] = np.abs(np.round(other[:, 5]))
    rows, others = sparse.csr_matrix(x), sparse.csr_matrix(other)
    weights = np.linspace(0.5, 2, len(y))
    given = settings(loss, **changes)
    want = train(None, Data(x, y, weights), given, [Data(other, y_other)])
    found = train(None, Data(rows, y, weights), given, [Data(others, y_other)])
    assert found.model.sha256 == want.model.sha256 and found.curves == want.curves
    np.testing.assert_array_equal(found.model.scores(others), want.model.scores(other))
    np.testing.assert_array_equal(found.model.leaves(others), want.model.leaves(other))


@pytest.mark.parametrize("case", ("plain", "wide columns", "categories"))
def test_every_split_of_a_sparse_table_has_one_hash_and_the_dense_words(case):
    loss, changes = CASES[case]
    x, y = zeros(loss)
    x[:, 5] = np.abs(x[:, 5])
    rows = sparse.csr_matrix(x)
    want = train(None, Data(x, y), settings(loss, **changes)).model.sha256
    for size, split in ((3, "rows"), (9, "rows"), (4, "columns"), (6, "3x2")):
        given = settings(loss, split=split, **changes)
        found = trained(size, given, rows, y)
        assert {made.model.sha256 for made, _ in found} == {want}, split
        one = [
            trained(size, settings(loss, split=split, **changes | {"rounds": k}), *each)
            for each in ((rows, y), (x, y))
            for k in (1, 2)
        ]
        words = [sum(sent for _, sent in each) for each in one]
        assert words[1] - words[0] == words[3] - words[2] > 0


def test_ranks_without_rows_or_columns_change_nothing():
    x, y = zeros("logistic", 5)
    want = train(None, Data(x, y), settings("logistic", min_rows=1)).model.sha256
    for size, split in ((9, "rows"), (12, "columns"), (27, "9x3")):
        given = settings("logistic", min_rows=1, split=split)
        found = trained(size, given, sparse.csr_array(x), y)
        assert {made.model.sha256 for made, _ in found} == {want}, split


@pytest.mark.parametrize("kind", ("coo", "csc", "stored zeros", "sums"))
def test_every_form_of_a_sparse_matrix_has_one_model(kind):
    x, y = zeros()
    want = train(None, Data(x, y), settings()).model.sha256
    made = sparse.csr_matrix(x)
    if kind == "stored zeros":
        rows, columns = np.indices(x.shape).reshape(2, -1)
        made = sparse.csr_matrix((x.ravel(), (rows, columns)), x.shape)
        assert made.nnz == x.size
    elif kind == "sums":
        halves = np.repeat(made.data / 2, 2)[::-1]
        made = sparse.csr_matrix(
            (
                halves,
                np.repeat(made.indices, 2)[::-1],
                2 * (made.nnz - made.indptr[::-1]),
            ),
            x.shape,
        )[::-1]
    else:
        made = made.asformat(kind)
    count = made.nnz
    assert train(None, Data(made, y), settings()).model.sha256 == want
    assert made.nnz == count  # the caller's matrix is as before


@pytest.mark.parametrize("dtype, bits", [(np.float32, 32), (np.float64, 64)])
@pytest.mark.parametrize("size", (1, 2, 5))
def test_edges_and_their_words_are_those_of_the_formula(size, dtype, bits):
    x, given = zeros(dtype=dtype)[0], settings(bins=8)

    def program(comm):
        comm = Metered(comm)
        own = canonical(sparse.csr_matrix(x[part(len(x), size, comm.rank)]))
        none = np.zeros(x.shape[1], bool)
        return make_bins(grid(comm, "rows"), own, given, none), comm.bytes_sent / 8

    results = sim.run(program, size)
    for found, _ in results:
        for f, column in enumerate(x.T):
            edges, _ = expected_edges(column)
            np.testing.assert_array_equal(found.of(f), edges)
    sent = 0
    for column in x.T:
        parts = [column[part(len(x), size, r)] for r in range(size)]
        most = max(len(np.unique(p[~np.isnan(p)] + 0)) for p in parts)
        sent += most if most <= 8 else 0
    wide = np.sum([expected_edges(column)[1] for column in x.T], axis=0).tolist()
    formula = bins.words(size, x.shape[1], sent, bits, wide) + 2 * (size - 1)
    assert sum(words for _, words in results) == formula


def test_messages_of_few_keys_change_no_edge(monkeypatch):
    x, y = zeros()
    want = train(None, Data(x, y), settings(bins=200)).model.sha256
    monkeypatch.setattr(bins, "GATHERED", 7)
    given = settings(bins=200, split="rows")
    found = trained(3, given, sparse.csr_matrix(x), y)
    assert {made.model.sha256 for made, _ in found} == {want}


def test_memory_follows_the_nonzeros():
    rows, columns = 2000, 100_000  # 800 MB in float32
    x = sparse.random_array((rows, columns), density=2e-4, rng=0, format="csr")
    x = x.astype(np.float32)
    y = np.asarray(x[:, [0]].toarray())[:, 0] + np.arange(rows) % 2
    train(None, Data(x[:9], y[:9]), settings(rounds=1))  # compiled
    tracemalloc.start()
    train(None, Data(x, y), settings(rounds=1, leaves=3, min_rows=1))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 400 * (x.nnz + columns)


def test_only_values_outside_of_the_bin_of_zero_are_stored():
    x = np.array([[0, 5, 0.0], [-1, 0, 0.1], [0, 5, 9], [0, 0, 9.5]])
    given = settings(min_rows=1, bins=2)
    data = Data(canonical(sparse.csr_array(x)), np.arange(4.0))
    place = located(grid(None, "rows"), [data], given)
    made = make_table(grid(None, "rows"), place, data, [], given)
    assert made.binned.starts.tolist() == [0, 1, 2, 4, 5]
    # bins: -1 and 0; 0 and 5; up to 0.1 and the others; and of missing values
    assert made.binned.codes.tolist() == [4, 0, 4, 7, 7]
    assert made.binned.zeros.tolist() == [1, 0, 0]
    assert bin_sparse(made.bins, [data.x[:0]]).codes.tolist() == []


def test_keys_below_zero_and_above_it():
    column = keys.Column(keys.keys_of(np.array([-1.0, 0.0, 2.0])), zeros=4)
    probes = keys.keys_of(np.array([-1.0, 0.0, 2.0, 3.0]))
    assert keys.below(column, probes).tolist() == [0, 1, 6, 7]
    assert keys.below(column, probes, "right").tolist() == [1, 6, 7, 7]


def test_the_estimator_accepts_sparse_features_on_ranks():
    x, y = zeros("softmax", dtype=np.float64)
    given = {"rounds": 3, "leaves": 5, "min_rows": 1}
    want = BoostingClassifier(**given).fit(x, y, np.arange(len(y)) % 2)

    def program(comm):
        place = share(comm.rank, 2, "rows", *x.shape)[0]
        model = BoostingClassifier(**given)
        rows = sparse.csr_matrix(x[place])
        model.fit(rows, y[place], np.arange(len(y))[place] % 2, comm=comm)
        assert (model.predict(rows) == want.predict(x[place])).all()
        return model.model_.sha256

    assert sim.run(program, 2) == [want.model_.sha256] * 2


def test_sparse_and_dense_blocks_are_not_mixed():
    x, y = zeros(rows=30)
    with pytest.raises(BadInput, match="evaluation sets that are sparse"):
        train(None, Data(sparse.csr_matrix(x), y), settings(), [Data(x, y)])

    def program(comm):
        own = x[:15] if comm.rank else sparse.csr_matrix(x[:15])
        with pytest.raises(BadInput, match="sparse blocks on all ranks or on none"):
            train(comm, Data(own, y[:15]), settings())

    sim.run(program, 2)
