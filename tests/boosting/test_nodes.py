"""Sums of nodes are those of their rows, and counted words those of the formula."""

import numpy as np
import pytest

from dml.boosting import Data, fixed, train
from dml.boosting.bins import words as bin_words
from dml.boosting.costs import tree_words
from dml.boosting.messages import grid, part
from dml.boosting.table import located, make_table
from dml.boosting.train import Boosting
from dml.boosting.tree import packed
from tests.boosting.tables import CATEGORY, SPLITS, settings, table, trained

LOSSES = ("squared", "logistic", "softmax")


def routed(tree, x):
    """Return whether each row is in each node, by the raw values."""
    inside = np.zeros((len(tree.column), len(x)), bool)
    leaves = np.full(len(x), -1)
    for i, row in enumerate(x):
        at = 0 if len(tree.column) else -1
        while at >= 0:
            inside[at, i] = True
            value = row[tree.column[at]]
            if tree.bin[at] < 0:
                left = value in tree.sets[at]
            elif np.isnan(value):
                left = tree.missing_left[at]
            else:
                left = value <= tree.threshold[at]
            at = tree.left[at] if left else tree.right[at]
        leaves[i] = -1 - at
    return inside, leaves


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("categories", ((), (CATEGORY,)))
def test_sums_of_nodes_are_those_of_their_rows(loss, categories):
    x, y = table(loss)
    weights = np.linspace(0.5, 2, len(y)) if categories else None
    given = settings(loss, categories=categories, leaves=9)
    data = Data(x, y, weights)
    model = train(None, data, given).model
    place = located(grid(None, "rows"), [data], given)
    again = Boosting(
        make_table(grid(None, "rows"), place, data, [], given), *(place,), data, []
    )
    scores = np.tile(model.start, (len(y), 1))
    for number, tree in enumerate(model.trees):
        if number % given.outputs == 0:
            given_scores = scores.copy()
        shares = given_scores
        if loss == "softmax":
            from dml.boosting import losses

            shares = np.empty_like(given_scores)
            losses.probabilities(given_scores, shares)
        numbers = again.gradients(shares, tree.output)
        g = numbers.packed >> 32
        h = numbers.packed & 0xFFFFFFFF
        inside, leaves = routed(tree, x)
        for rows, sums in zip(inside, tree.node_sums, strict=True):
            assert sums.tolist() == [g[rows].sum(), h[rows].sum(), rows.sum()]
        for leaf, sums in enumerate(tree.leaf_sums):
            rows = leaves == leaf
            assert sums.tolist() == [g[rows].sum(), h[rows].sum(), rows.sum()]
            fine = numbers.fine.reshape(-1, 2)[rows].astype(np.int64).sum(axis=0)
            value = -fine[0] * numbers.g_fine / (fine[1] * numbers.h_fine + given.l2)
            assert tree.value[leaf] == pytest.approx(given.rate * value, rel=1e-12)
        scores[:, tree.output] += tree.value[leaves]
    np.testing.assert_array_equal(scores, model.scores(x))
    assert packed(model.trees).nodes[-1] == sum(len(t.column) for t in model.trees)


def bits(tree, x, rows_of_grid):
    """Return Σ over blocks of rows of ⌈m/64⌉, for each node."""
    inside, _ = routed(tree, x)
    return sum(
        -(-inside[:, part(len(x), rows_of_grid, r)].sum(axis=1) // 64)
        for r in range(rows_of_grid)
    )


@pytest.mark.parametrize("size, split", [s for s in SPLITS if s[0] in (1, 3, 6)])
@pytest.mark.parametrize(
    "loss, changes",
    [
        ("logistic", {"min_rows": 1}),
        ("logistic", {"min_rows": 2, "depth": 3}),
        ("squared", {"min_rows": 40, "leaves": 12}),
        ("logistic", {"min_rows": 1, "categories": (CATEGORY,)}),
    ],
)
def test_the_words_of_a_tree_are_those_of_the_formula(size, split, loss, changes):
    x, y = table(loss)
    sent = {}
    for rounds in (1, 2):
        given = settings(loss, split=split, rounds=rounds, **changes)
        results = trained(size, given, x, y)
        sent[rounds] = sum(words for _, words in results)
    model = results[0][0].model
    rows, columns = (size, 1) if split == "rows" else (1, size)
    if "x" in split:
        rows, columns = map(int, split.split("x"))
    missing = np.isnan(x).any(axis=0)
    place = located(grid(None, "rows"), [Data(x, y)], given)
    whole = make_table(grid(None, "rows"), place, Data(x, y), [], given)
    slots = int((whole.bins.counts + missing).sum())
    counted = whole.counted and loss != "squared"
    formula = 0
    for tree in model.trees[1:]:
        formula += tree_words(
            *(tree, given, (rows, columns), slots, counted, bits(tree, x, rows))
        )
        formula += columns * 2 * (rows - 1) * (loss == "squared")  # largest |g|
        formula += rows * 2 * (columns - 1) * len(tree.column)  # thresholds
    assert sent[2] - sent[1] == formula


def test_a_table_of_one_bin_sends_no_bits():
    assert bin_words(1, 7, 24, 32, (4, 1, 5)) == 0


def test_a_node_of_more_rows_than_a_packed_sum_has_exact_sums():
    n = fixed.FLUSH + 7
    x = np.arange(n, dtype=np.float32)[:, None] % 3
    y = (x[:, 0] == 1).astype(float)
    x = np.column_stack([x, np.zeros(n, np.float32)])
    model = train(None, Data(x, y), settings("logistic", rounds=1, leaves=3)).model
    tree = model.trees[0]
    for leaf, sums in enumerate(tree.leaf_sums):
        rows = model.leaves(x)[:, 0] == leaf
        assert sums[2] == rows.sum()
    share = y.mean()
    g = int(np.floor((share - 1) * 2.0**30 + 0.5)) + 4096 >> 13
    found = next(s for s in tree.leaf_sums if s[0] < 0)
    assert abs(found[0] - g * y.sum()) <= y.sum()
