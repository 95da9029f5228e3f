"""One model for every number of ranks, split and order of the rows."""

import numpy as np
import pytest

from dml.boosting import Data, from_json, to_json, train
from dml.boosting.messages import grid
from dml.boosting.table import located
from tests.boosting.tables import CATEGORY, SPLITS, settings, table, trained

LOSSES = ("squared", "logistic", "softmax")
CASES = {
    "plain": {},
    "one row a leaf": {"min_rows": 1},
    "categories": {"categories": (CATEGORY,), "min_rows": 1},
    "constraints": {"monotone": (1, 0, 0, 0, -1, 0, 0)},
    "samples": {"row_share": 0.6, "column_share": 0.5},
    "shallow": {"depth": 2, "l1": 0.5, "min_hessian": 2.0},
}


def one(given, x, y, weights=None, evaluate=()):
    blocks = [Data(*each) for each in evaluate]
    return train(None, Data(x, y, weights), given, blocks)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_one_hash_for_every_split(loss, case):
    x, y = table(loss)
    weights = np.linspace(0.5, 3, len(y)) if case in ("plain", "samples") else None
    want = one(settings(loss, **CASES[case]), x, y, weights).model.sha256
    # every split for one loss and case, two of them for each of the others
    every, first = (loss, case) == ("logistic", "plain"), len(loss + case) % 7
    chosen = SPLITS if every else SPLITS[first + 1 :: 10]
    for size, split in chosen:
        given = settings(loss, split=split, **CASES[case])
        found = {made.model.sha256 for made, _ in trained(size, given, x, y, weights)}
        assert found == {want}, (size, split)


@pytest.mark.parametrize("split", ("rows", "columns", "2x2"))
def test_a_hundred_trees_have_one_hash(split):
    x, y = table("logistic", 200, dtype=np.float64)
    want = one(settings("logistic", rounds=100), x, y).model
    given = settings("logistic", rounds=100, split=split)
    size = 4 if split == "2x2" else 2
    assert {m.model.sha256 for m, _ in trained(size, given, x, y)} == {want.sha256}
    assert len(want.trees) == 100


def test_ranks_without_rows_or_columns_change_nothing():
    x, y = table("logistic", 5)
    given = settings("logistic", min_rows=1, rounds=2)
    want = one(given, x, y).model.sha256
    for size, split in ((9, "rows"), (12, "columns"), (27, "9x3")):
        given = settings("logistic", min_rows=1, rounds=2, split=split)
        assert {m.model.sha256 for m, _ in trained(size, given, x, y)} == {want}


def test_the_order_of_the_rows_changes_nothing():
    x, y = table("softmax")
    order = np.random.default_rng(5).permutation(len(y))
    given = settings("softmax")
    want = one(given, x, y).model.sha256
    assert one(given, x[order], y[order]).model.sha256 == want
    found = trained(3, given, x[order], y[order])
    assert {made.model.sha256 for made, _ in found} == {want}


def test_other_targets_seeds_or_settings_change_the_hash():
    x, y = table()
    given = settings(row_share=0.5)
    hashes = {
        one(given, x, y).model.sha256,
        one(settings(row_share=0.5, seed=1), x, y).model.sha256,
        one(settings(row_share=0.5, l2=2.0), x, y).model.sha256,
        one(given, x, y + (np.arange(len(y)) == 7)).model.sha256,
    }
    assert len(hashes) == 4


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_of_training_are_those_of_the_model(loss):
    x, y = table(loss)
    other = table(loss, 90, seed=1)
    made = one(settings(loss, row_share=0.7), x, y, evaluate=[(x, y), other])
    for name, (features, targets) in (("0", (x, y)), ("1", other)):
        p = made.model.predictions(features)
        if loss == "squared":
            want = np.mean((p - targets) ** 2)
        else:
            want = -np.log(p[np.arange(len(p)), targets.astype(int)]).mean()
        assert made.curves[name][-1] == pytest.approx(want, rel=1e-6)


def test_training_stops_after_rounds_without_a_smaller_loss():
    x, y = table("logistic")
    held_out = table("logistic", 60, seed=3)
    given = settings("logistic", rounds=50, stop_after=4, rate=1.0)
    made = one(given, x, y, evaluate=[held_out])
    curve = made.curves["0"]
    assert np.argmin(curve) > 0
    assert made.best == int(np.argmin(curve)) + 1 == len(made.model.trees)
    assert len(curve) == min(made.best + 4, 50) < 50
    given = settings("logistic", rounds=50, stop_after=4, rate=1.0, split="2x2")
    for found, _ in trained(4, given, x, y, evaluate=[held_out]):
        assert found.model.sha256 == made.model.sha256
        assert found.curves == made.curves


def test_json_has_every_bit_of_a_model():
    x, y = table("softmax")
    model = one(settings("softmax", categories=(CATEGORY,)), x, y).model
    again = from_json(to_json(model))
    assert again.sha256 == model.sha256
    np.testing.assert_array_equal(again.scores(x), model.scores(x))


def test_importances_are_the_gains_and_counts_of_the_columns():
    x, y = table()
    model = one(settings(rounds=6), x, y).model
    counts, gains = model.importances("count"), model.importances()
    assert counts.sum() == sum(len(tree.column) for tree in model.trees)
    assert gains[6] == counts[6] == 0 < gains[0]


def test_the_place_of_a_block_follows_from_the_sizes_of_all_ranks():
    from dml import sim
    from tests.boosting.tables import blocks

    x, y = table(rows=11)

    def program(comm):
        block = blocks(comm.rank, 6, "3x2", x, y)
        place = located(grid(comm, "3x2"), [block], settings(split="3x2"))
        return place.rows, place.first_row, place.firsts.tolist()

    assert sim.run(program, 6) == [(11, r, [0, 3, 7]) for r in (0, 0, 3, 3, 7, 7)]
