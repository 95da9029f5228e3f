"""The text of a model: read by a small evaluator, and by LightGBM if installed."""

import numpy as np
import pytest

from dml.boosting import Data, Settings, train
from dml.boosting.lightgbm_text import to_lightgbm
from dml.data.tables import generated
from dml.types import BadInput
from tests.boosting.tables import CATEGORY, settings, table

LOSSES = ("squared", "logistic", "softmax")


def trained(loss, categories=(), rounds=8):
    x, y = table(loss, dtype=np.float64)
    given = settings(loss, rounds=rounds, categories=categories, leaves=9)
    return train(None, Data(x, y), given).model


def unseen():
    """Return rows with missing, unseen and extreme values."""
    others = [[value] * 7 for value in (9.0, np.nan, 0.0, -3.0, 2.5, 77.0, 1e300)]
    return np.concatenate([table(rows=200, seed=9, dtype=np.float64)[0], others])


def evaluated(text, x):
    """Return the scores of a text, by the rules of LightGBM's format."""
    fields = dict(line.split("=", 1) for line in text.split("\n\n")[0].split("\n")[1:])
    outputs = int(fields["num_tree_per_iteration"])
    sizes = [int(size) for size in fields["tree_sizes"].split()]
    first = text.index("Tree=0")
    scores = np.zeros((len(x), outputs))
    for number, size in enumerate(sizes):
        part = text.encode()[first : first + size].decode()
        assert part.startswith(f"Tree={number}\n")
        first += size
        tree = {
            name: value.split()
            for name, value in (line.split("=") for line in part.split("\n") if line)
        }
        for i, row in enumerate(x):
            at = 0 if tree["left_child"] else -1
            while at >= 0:
                kind = int(tree["decision_type"][at])
                value = row[int(tree["split_feature"][at])]
                if kind & 1:
                    place = int(tree["threshold"][at])
                    begin, end = map(int, tree["cat_boundaries"][place : place + 2])
                    bits = list(map(int, tree["cat_threshold"][begin:end]))
                    inside = 0 <= value < 32 * len(bits)  # not NaN
                    left = inside and bits[int(value) // 32] >> int(value) % 32 & 1
                elif np.isnan(value):
                    assert kind & 8
                    left = kind & 2
                else:
                    left = value <= float(tree["threshold"][at])
                at = int(tree["left_child" if left else "right_child"][at])
            scores[i, number % outputs] += float(tree["leaf_value"][-1 - at])
    assert text[first:].startswith("end of trees\n")
    return scores


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("categories", ((), (CATEGORY,)))
def test_the_text_has_the_scores_of_the_model(loss, categories):
    model, x = trained(loss, categories), unseen()
    np.testing.assert_array_equal(evaluated(to_lightgbm(model), x), model.scores(x))


def test_a_model_without_trees_is_a_constant():
    model, x = trained("softmax", rounds=0), unseen()
    np.testing.assert_array_equal(evaluated(to_lightgbm(model), x), model.scores(x))


def test_names_of_columns_are_checked():
    with pytest.raises(BadInput, match="expected 7 names without spaces and ="):
        to_lightgbm(trained("squared"), ["a b"] * 7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("categories", ((), (CATEGORY,)))
def test_lightgbm_predicts_the_same_bits(loss, categories):
    lightgbm = pytest.importorskip("lightgbm")
    model, x = trained(loss, categories), unseen()
    loaded = lightgbm.Booster(model_str=to_lightgbm(model))
    scores = loaded.predict(x, raw_score=True).reshape(len(x), -1)
    np.testing.assert_array_equal(scores, model.scores(x))
    np.testing.assert_array_equal(loaded.predict(x, pred_leaf=True), model.leaves(x))
    parts = loaded.predict(x[:20], pred_contrib=True).reshape(20, -1, 8).sum(axis=2)
    np.testing.assert_allclose(parts, model.scores(x[:20]), atol=1e-9)


def test_the_first_tree_on_given_bins_is_that_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    x, y = generated.higgs(20_000, 0)
    cuts = np.quantile(x, np.arange(1, 200) / 200, axis=0).T
    columns = [np.searchsorted(cut, c) for cut, c in zip(cuts, x.T, strict=True)]
    x = np.column_stack(columns).astype(np.float32)
    equal = dict(rounds=1, leaves=31, min_rows=0, min_hessian=1.0)
    model = train(None, Data(x, y), Settings("logistic", **equal)).model
    options = {"objective": "binary", "num_leaves": 31, "lambda_l2": 1.0}
    options |= {"min_data_in_leaf": 0, "min_sum_hessian_in_leaf": 1.0}
    options |= {"min_data_in_bin": 1, "verbosity": -1, "num_threads": 1}
    theirs = lightgbm.train(options, lightgbm.Dataset(x, y, params=options), 1)
    difference = model.scores(x)[:, 0] - theirs.predict(x, raw_score=True)
    assert np.mean(np.abs(difference) < 1e-3) >= 0.99
