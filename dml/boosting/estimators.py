"""Estimators in the manner of scikit-learn, in one process or on the ranks of `comm`.

    from dml.boosting.estimators import BoostingClassifier

    model = BoostingClassifier(rounds=200, stop_after=20)
    model.fit(x, y, eval_set=[(x_held_out, y_held_out)])
    model.predict_proba(x_new)

Under mpirun, each rank passes its rows (or its block of a grid) and `comm`; all ranks
have the model of the whole table, for any number of ranks.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    is_classifier,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dml.boosting.lightgbm_text import to_lightgbm
from dml.boosting.messages import agree, gather_texts
from dml.boosting.model import Model
from dml.boosting.settings import Data, Settings
from dml.boosting.train import Report, train
from dml.types import BadInput
from dml.wire.comm.plain import as_comm

VALID: dict[str, Any] = {  # checks of features by scikit-learn
    "accept_sparse": "csr",
    "dtype": [np.float64, np.float32],
    "ensure_all_finite": "allow-nan",
    "order": "C",
}


class Boosting(BaseEstimator):
    """Common part of both estimators; the parameters are those of Settings.

    Attributes:
      model_: The `Model`; `model_.sha256` is its hash.
      curves_: Losses by round of each evaluation set: "0", "1", …
      best_rounds_: Number of rounds of the model.
      n_features_in_: Number of columns.
    """

    model_: Model

    def __init__(
        self,
        *,
        rounds: int = 100,
        rate: float = 0.1,
        leaves: int = 31,
        depth: int = 0,
        bins: int = 255,
        l1: float = 0.0,
        l2: float = 1.0,
        min_rows: int = 20,
        min_hessian: float = 1e-3,
        min_gain: float = 0.0,
        row_share: float = 1.0,
        column_share: float = 1.0,
        seed: int = 0,
        stop_after: int = 0,
        categories: Sequence[int] = (),
        monotone: Sequence[int] = (),
        split: str = "rows",
    ):
        self.rounds = rounds
        self.rate = rate
        self.leaves = leaves
        self.depth = depth
        self.bins = bins
        self.l1 = l1
        self.l2 = l2
        self.min_rows = min_rows
        self.min_hessian = min_hessian
        self.min_gain = min_gain
        self.row_share = row_share
        self.column_share = column_share
        self.seed = seed
        self.stop_after = stop_after
        self.categories = categories
        self.monotone = monotone
        self.split = split

    def settings(self, loss: str, classes: int = 1) -> Settings:
        """Return the settings of training."""
        names = {field.name for field in fields(Settings)}
        given = {k: v for k, v in self.get_params().items() if k in names}
        given["categories"] = tuple(self.categories)
        given["monotone"] = tuple(self.monotone)
        return Settings(loss=loss, classes=classes, **given)

    def _train(
        self,
        settings: Settings,
        blocks: Sequence[Data],
        comm: Any,
        report: Report | None,
    ) -> None:
        made = train(comm, blocks[0], settings, blocks[1:], report)
        self.model_, self.curves_, self.best_rounds_ = made
        self.n_features_in_ = self.model_.columns  # of all ranks

    @property
    def feature_importances_(self) -> np.ndarray:
        """The share of each column in the gains of all nodes."""
        gains = self.fitted().importances()
        return gains / gains.sum() if gains.sum() else gains

    def fitted(self) -> Model:
        """Return the model; raise NotFittedError before `fit`."""
        check_is_fitted(self, "model_")
        return self.model_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def block(self, x: Any, y: Any, weights: Any, comm: Any, reset: bool) -> Data:
        """Return a checked block of the table, without rows of weight 0."""
        least = 0 if comm else 1
        options = VALID | {"ensure_min_samples": least, "ensure_min_features": least}
        problem, data = "", None
        try:
            x, y = validate_data(self, x, y, reset=reset, **options)
            if is_classifier(self):
                check_classification_targets(y)
            if weights is not None:
                weights = np.broadcast_to(np.asarray(weights, float), x.shape[:1])
                if comm is None and not weights.any():  # scikit-learn's words
                    raise ValueError(
                        "Sample weights must contain at least one non-zero number."
                    )
                x, y, weights = (each[weights != 0] for each in (x, y, weights))
            data = Data(x, y, weights)
        except ValueError as error:
            if comm is None:
                raise
            problem = str(error)
        agree(None if comm is None else as_comm(comm), problem)
        assert data
        return data

    def blocks(self, training: tuple, eval_set: Sequence, comm: Any) -> list[Data]:
        """Return the checked blocks of training and of the evaluation sets."""
        sets = [training, *((*each, None)[:3] for each in eval_set)]
        return [
            self.block(x, y, weights, comm, i == 0)
            for i, (x, y, weights) in enumerate(sets)
        ]

    def predictions(self, x: Any) -> np.ndarray:
        """Return the predictions of the model, after checks of the features."""
        model = self.fitted()
        return model.predictions(validate_data(self, x, reset=False, **VALID))

    def to_lightgbm(self, names: Sequence[str] = ()) -> str:
        """Return the model in LightGBM's text format."""
        return to_lightgbm(self.fitted(), names)


class BoostingRegressor(RegressorMixin, Boosting):
    """Regression by the squared loss."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Sequence[tuple] = (),
        comm: Any = None,
        report: Report | None = None,
    ) -> "BoostingRegressor":
        """Train; collective if `comm` is given.

        Args:
          X: Features, an array or a sparse matrix; a number NaN is missing.
          y: Targets.
          sample_weight: Weights of the rows, above 0.
          eval_set: Evaluation sets (X, y) or (X, y, weights).
          comm: Communicator of dml or of mpi4py, whose ranks have parts of the table.
          report: Called after each round with its number and the losses.
        """
        blocks = self.blocks((X, y, sample_weight), eval_set, comm)
        blocks = [each._replace(y=each.y.astype(np.float64)) for each in blocks]
        self._train(self.settings("squared"), blocks, comm, report)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted means."""
        return self.predictions(X)


class BoostingClassifier(ClassifierMixin, Boosting):
    """Classification by the logistic loss, or softmax for more than two classes.

    Attributes:
      classes_: The labels, in ascending order.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Sequence[tuple] = (),
        comm: Any = None,
        report: Report | None = None,
    ) -> "BoostingClassifier":
        """Train; arguments as of BoostingRegressor, with labels as targets."""
        blocks = self.blocks((X, y, sample_weight), eval_set, comm)
        labels = np.unique(blocks[0].y).tolist()
        texts = gather_texts(comm, json.dumps(labels))
        self.classes_ = np.unique(
            [label for text in texts for label in json.loads(text)]
        )
        if len(self.classes_) < 2:
            raise BadInput(
                f"expected rows of at least 2 classes, got {len(self.classes_)} class; "
                "pass rows of another class, too"
            )
        blocks = [each._replace(y=self.numbered(each.y)) for each in blocks]
        classes = len(self.classes_)
        settings = self.settings("softmax", classes)
        if classes == 2:
            settings = self.settings("logistic")
        self._train(settings, blocks, comm, report)
        return self

    def numbered(self, y: Any) -> np.ndarray:
        """Return the number of each label; -1, which is refused, for another label."""
        labels = np.asarray(y)
        place = np.searchsorted(self.classes_, labels)
        known = np.isin(labels, self.classes_)
        return np.where(known, place, -1).astype(np.float64)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class."""
        return self.predictions(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable labels."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]
