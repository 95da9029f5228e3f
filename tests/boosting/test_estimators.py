"""Estimators behave as scikit-learn's, and have one model on any number of ranks."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from dml import sim
from dml.boosting.estimators import BoostingClassifier, BoostingRegressor
from dml.boosting.messages import share
from dml.types import BadInput
from tests.boosting.tables import table

SMALL = {"rounds": 3, "leaves": 5, "min_rows": 1, "rate": 0.5}


@pytest.mark.parametrize("kind", (BoostingClassifier, BoostingRegressor))
def test_scikit_learn_accepts_the_estimator(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that are skipped without pandas
        results = check_estimator(kind(**SMALL), on_fail=None)
    failed = [each["check_name"] for each in results if each["status"] == "failed"]
    assert not failed and len(results) > 50


def test_accuracy_on_real_sets():
    x, y = load_breast_cancer(return_X_y=True)
    model = BoostingClassifier(rounds=40, leaves=8)
    assert cross_val_score(model, x, y, cv=3).mean() > 0.94
    x, y = load_iris(return_X_y=True)
    model = BoostingClassifier(rounds=20, leaves=4, min_rows=5)
    assert cross_val_score(model, x, y, cv=3).mean() > 0.9


def test_labels_may_be_names():
    x, y = table("softmax")
    names = np.array(["low", "middle", "high"])[y.astype(int)]
    model = BoostingClassifier(**SMALL).fit(x, names)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert np.mean(model.predict(x) == names) > 0.7
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1)


@pytest.mark.parametrize("split, size", [("rows", 3), ("columns", 2), ("2x2", 4)])
def test_ranks_have_the_model_of_one_process(split, size):
    x, y = table("softmax", dtype=np.float64)
    y = y[np.argsort(y)]  # so that a rank lacks a class
    weights = np.arange(len(y)) % 3.0  # a third of the rows has weight 0
    held_out = x[:50], y[:50]
    given = SMALL | {"stop_after": 2, "rounds": 6}
    want = BoostingClassifier(**given).fit(x, y, weights, [held_out])

    def program(comm):
        rows, columns = share(comm.rank, size, split, *x.shape)
        few, _ = share(comm.rank, size, split, 50, 7)
        model = BoostingClassifier(**given, split=split)
        model.fit(
            *(x[rows, columns], y[rows], weights[rows]),
            [(held_out[0][few, columns], held_out[1][few])],
            comm=comm,
        )
        assert (model.predict(x) == want.predict(x)).all()
        return model.model_.sha256, model.curves_

    assert sim.run(program, size) == [(want.model_.sha256, want.curves_)] * size


def test_wrong_input_of_one_rank_is_refused_on_all_ranks():
    x, y = table(dtype=np.float64)

    def program(comm):
        own = y.copy()
        if comm.rank == 1:
            own = own[:-1]
        with pytest.raises(BadInput, match="rank 1: Found input variables with incon"):
            BoostingRegressor(**SMALL).fit(x, own, comm=comm)

    sim.run(program, 2)


def test_rows_of_weight_0_are_left_out():
    x, y = table()
    weights = (np.arange(len(y)) % 2).astype(float)
    half = weights > 0
    one = BoostingRegressor(**SMALL).fit(x, y, weights).model_
    two = BoostingRegressor(**SMALL).fit(x[half], y[half], weights[half]).model_
    assert one.sha256 == two.sha256


def test_a_rank_may_have_rows_of_weight_0_alone():
    x, y = table(dtype=np.float64)
    weights = (np.arange(len(y)) < 200).astype(float)
    want = BoostingRegressor(**SMALL).fit(x, y, weights).model_.sha256

    def program(comm):
        rows, _ = share(comm.rank, 2, "rows", *x.shape)
        model = BoostingRegressor(**SMALL)
        return model.fit(x[rows], y[rows], weights[rows], comm=comm).model_.sha256

    assert sim.run(program, 2) == [want] * 2
    with pytest.raises(ValueError, match="at least one non-zero number"):
        BoostingRegressor(**SMALL).fit(x, y, 0 * weights)


def test_parameters_and_importances():
    x, y = table()
    model = BoostingRegressor(**SMALL).set_params(leaves=3)
    again = clone(model).fit(x, y)
    assert again.get_params()["leaves"] == 3
    assert all(len(tree.value) <= 3 for tree in again.model_.trees)
    shares = again.feature_importances_
    assert shares.sum() == pytest.approx(1) and shares[0] > 0 == shares[6]
    assert again.to_lightgbm().startswith("tree\nversion=v4\n")


def test_one_class_is_refused():
    with pytest.raises(BadInput, match="at least 2 classes, got 1 class"):
        BoostingClassifier().fit(np.zeros((3, 1)), [1, 1, 1])
