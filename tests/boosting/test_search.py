"""The best split is that of all splits, by rows and real numbers."""

import itertools

import numpy as np
import pytest

from dml.boosting import Data, train
from dml.boosting.search import ONE_HOT
from tests.boosting.tables import CATEGORY, settings, table

L1, L2 = 0.3, 1.5


def score(g, h):
    return max(abs(g) - L1, 0) ** 2 / (h + L2)


def gain(g, h, left, given):
    """Return the gain of a set of rows on the left; None if it is refused."""
    right = ~left
    if min(left.sum(), right.sum()) < given.min_rows:
        return None
    if min(h[left].sum(), h[right].sum()) < given.min_hessian:
        return None
    parts = [score(g[side].sum(), h[side].sum()) for side in (left, right)]
    return sum(parts) - score(g.sum(), h.sum())


def numbers(column):
    """Yield all sets of rows of a threshold and a side of missing values."""
    missing = np.isnan(column)
    for value in np.unique(column[~missing]):
        yield missing | (column <= value)
        yield ~missing & (column <= value)


def categories(column):
    """Yield all sets of rows of one category."""
    for value in np.unique(column):
        yield column == value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", ("squared", "logistic"))
def test_the_root_has_the_largest_gain_of_all_splits(loss, seed):
    x, y = table(loss, 60, seed)
    x[:, CATEGORY] %= ONE_HOT
    given = settings(
        *(loss,),
        rounds=1,
        leaves=2,
        l1=L1,
        l2=L2,
        min_rows=4,
        min_hessian=1.0,
        bins=255,
        categories=(CATEGORY,),
    )
    model = train(None, Data(x, y), given).model
    f = model.start[0]
    p = 1 / (1 + np.exp(-f))
    g, h = (f - y, np.ones(60)) if loss == "squared" else (p - y, 0 * y + p * (1 - p))
    best = {
        c: max(
            found
            for left in (categories if c == CATEGORY else numbers)(x[:, c])
            if (found := gain(g, h, left, given)) is not None
        )
        for c in range(6)
    }
    tree = model.trees[0]
    assert tree.column[0] == max(best, key=best.get)
    assert tree.gain[0] == pytest.approx(max(best.values()), rel=1e-3)


def test_a_set_of_categories_is_the_best_of_all_sets():
    rng = np.random.default_rng(2)
    x = np.repeat(np.arange(6), 150).astype(np.float32)
    effect = rng.standard_normal(6)
    y = effect[x.astype(int)] + 0.01 * rng.standard_normal(900)
    given = settings(rounds=1, leaves=2, categories=(0,), min_rows=1, l2=0.0)
    model = train(None, Data(x[:, None], y), given).model
    left = set(model.trees[0].sets[0])
    centred = effect - y.mean()

    def decrease(chosen):
        inside = np.isin(np.arange(6), chosen)
        return centred[inside].sum() ** 2 / (len(chosen) + 10 / 150) + centred[
            ~inside
        ].sum() ** 2 / (6 - len(chosen) + 10 / 150)

    subsets = [s for k in (1, 2, 3) for s in itertools.combinations(range(6), k)]
    want = set(max(subsets, key=decrease))
    assert left in (want, set(range(6)) - want)


def test_unseen_and_missing_categories_go_right():
    x = np.repeat(np.arange(6), 150).astype(np.float64)[:, None]
    y = (x[:, 0] > 3) * 1.0
    given = settings(rounds=1, leaves=2, categories=(0,), min_rows=1)
    model = train(None, Data(x, y), given).model
    tree = model.trees[0]
    other = np.array([[np.nan], [6.0], [77.0], [-1.0]])
    assert (model.leaves(other)[:, 0] == 1).all()
    inside = np.array([[float(value)] for value in tree.sets[0]])
    assert (model.leaves(inside)[:, 0] == 0).all()


@pytest.mark.parametrize("sign", (1, -1))
@pytest.mark.parametrize("loss", ("squared", "logistic"))
def test_constrained_predictions_are_monotone(loss, sign):
    x, y = table(loss)
    y = y if loss == "logistic" else -y  # against the trend of column 0
    given = settings(
        loss, rounds=15, leaves=12, min_rows=1, monotone=(sign, 0, 0, 0, 0, 0, 0)
    )
    model = train(None, Data(x, y), given).model
    rows = np.repeat(np.nan_to_num(x[:20]), 50, axis=0)
    rows[:, 0] = np.tile(np.linspace(-3, 3, 50), 20)
    steps = np.diff(model.scores(rows)[:, 0].reshape(20, 50), axis=1)
    assert (sign * steps >= 0).all() and (steps != 0).any() == (
        (loss == "logistic") == (sign > 0)
    )


def test_missing_values_go_to_the_better_side():
    x = np.array([0.0, 0, 0, 1, 1, 1, np.nan, np.nan] * 20)[:, None]
    for y_missing in (0.0, 1.0):
        y = np.where(np.isnan(x[:, 0]), y_missing, x[:, 0])
        model = train(None, Data(x, y), settings(rounds=1, leaves=2, min_rows=1)).model
        tree = model.trees[0]
        assert tree.missing_left[0] == (y_missing == 0)
        assert tree.threshold[0] == 0.5


def test_missing_values_go_right_if_both_sides_are_equally_good():
    x = np.repeat([0.0, 1.0, np.nan], [10, 10, 4])[:, None]
    y = np.repeat([-1.0, 1.0, 0.0], [10, 10, 4])
    (tree,) = train(
        None, Data(x, y), settings(rounds=1, leaves=2, min_rows=1)
    ).model.trees
    assert tree.missing_left.tolist() == [False] and tree.leaf_sums[:, 2].tolist() == [
        10,
        14,
    ]


def test_leaves_are_within_the_middle_of_constrained_children():
    x, y = table(seed=4)
    given = settings(
        rounds=1, leaves=30, min_rows=1, rate=1.0, monotone=(1, 0, 0, 0, 0, 0, 0)
    )
    (tree,) = train(None, Data(x, y), given).model.trees
    values = {"bounded": 0}

    def child(number, low, high):
        sums = tree.node_sums[number] if number >= 0 else tree.leaf_sums[-1 - number]
        g, h = sums[0] * tree.units[0], sums[1] * tree.units[1]
        return min(max(-g / (h + given.l2), low), high)

    def check(number, low, high):
        if number < 0:
            value = tree.value[-1 - number]
            values["bounded"] += value in (low, high)
            assert low <= value <= high
            return
        one, two = tree.left[number], tree.right[number]
        bounds = (low, high), (low, high)
        if tree.column[number] == 0:
            middle = (child(one, low, high) + child(two, low, high)) / 2
            bounds = (low, middle), (middle, high)
        check(one, *bounds[0])
        check(two, *bounds[1])

    check(0, -np.inf, np.inf)
    assert values["bounded"]


def test_missing_values_alone_can_be_divided_from_all_others():
    x = np.array([[1.0], [2.0], [np.nan], [np.nan]] * 10)
    y = np.isnan(x[:, 0]) * 1.0
    model = train(None, Data(x, y), settings(rounds=1, leaves=2, min_rows=1)).model
    assert model.leaves(np.array([[1e300], [np.nan]]))[:, 0].tolist() == [0, 1]


def test_without_missing_values_in_training_they_go_with_the_larger_half():
    x = np.arange(40.0)[:, None]
    y = (x[:, 0] > 29) * 1.0
    model = train(None, Data(x, y), settings(rounds=1, leaves=2, bins=255)).model
    assert model.trees[0].missing_left.tolist() == [True]
