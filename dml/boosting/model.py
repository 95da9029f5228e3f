"""The model: trees, their hash, predictions, importances and JSON."""

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dml.boosting import losses
from dml.boosting.sparse import canonical
from dml.boosting.tree import Packed, Tree, add_predictions, packed
from dml.types import BadInput

FORMAT = "dml boosting 1"
ROWS = 1024  # of a sparse matrix that are dense at a time


class Model(NamedTuple):
    """A trained model.

    Attributes:
      loss: Name of the loss.
      start: Score of each output before the first tree.
      trees: Trees, round by round.
      columns: Number of columns.
      categories: Numbers of the columns of categories.
    """

    loss: str
    start: np.ndarray
    trees: list[Tree]
    columns: int
    categories: tuple[int, ...] = ()

    @property
    def sha256(self) -> str:
        """The hash of every number of the model."""
        digest = hashlib.sha256(f"{self.loss} {self.columns}".encode())
        digest.update(self.start.astype("<f8").tobytes())
        for tree in self.trees:
            for field in tree:
                if isinstance(field, np.ndarray):
                    digest.update(field.astype(field.dtype.newbyteorder("<")).tobytes())
                else:
                    digest.update(repr(field).encode())
        return digest.hexdigest()

    def scores(self, x: Any, rounds: int | None = None) -> np.ndarray:
        """Return the score of each row and output, with the trees of some rounds.

        `x` is an array or a sparse matrix of SciPy.
        """
        x = self.checked(x)
        scores = np.tile(self.start, (x.shape[0], 1))
        add_rows(x, packed(self.used(rounds)), scores, np.zeros((0, 0), int))
        return scores

    def leaves(self, x: Any) -> np.ndarray:
        """Return the leaf of each row in each tree."""
        x = self.checked(x)
        leaves = np.zeros((x.shape[0], len(self.trees)), np.int64)
        scores = np.zeros((x.shape[0], len(self.start)))
        if x.shape[0]:
            add_rows(x, packed(self.trees), scores, leaves)
        return leaves

    def used(self, rounds: int | None) -> list[Tree]:
        """Return the trees of the first rounds; None: all."""
        count = None if rounds is None else rounds * len(self.start)
        return self.trees[:count]

    def checked(self, x: Any) -> Any:
        """Return features as a matrix with the columns of the model."""
        x = canonical(x) if sparse.issparse(x) else np.asarray(x)
        if x.dtype != np.float32:
            x = x.astype(np.float64)
        if x.ndim != 2 or x.shape[1] != self.columns:
            raise BadInput(
                f"expected a matrix of {self.columns} columns, got shape {x.shape}; "
                "pass the columns of the training"
            )
        return x if sparse.issparse(x) else np.ascontiguousarray(x)

    def predictions(self, x: Any, rounds: int | None = None) -> np.ndarray:
        """Return means (squared), or the probability of each class."""
        scores = self.scores(x, rounds)
        if self.loss == "squared":
            return scores[:, 0]
        if self.loss == "logistic":  # the softmax of 0 and f
            scores = np.column_stack([np.zeros(len(scores)), scores])
        made = np.empty_like(scores)
        losses.probabilities(scores, made)
        return made

    def importances(self, kind: str = "gain") -> np.ndarray:
        """Return the sum of gains ("gain") or the number of nodes ("count") by column.

        The gains of a column are added exactly, then rounded.
        """
        if kind not in ("gain", "count"):
            raise BadInput(f"expected gain or count, got {kind!r}; pass one of them")
        made = np.zeros(self.columns)
        for tree in self.trees:
            np.add.at(made, tree.column, tree.gain if kind == "gain" else 1.0)
        return made


def add_rows(x: Any, trees: Packed, out_NxK: np.ndarray, leaf_NxT: np.ndarray) -> None:
    """Call `add_predictions`; of a sparse matrix, with the columns that trees read."""
    if not sparse.issparse(x):
        add_predictions(x, trees, out_NxK, leaf_NxT)
        return
    read, places = np.unique(trees.column, return_inverse=True)
    trees = trees._replace(column=places.astype(np.int64))
    for begin in range(0, x.shape[0], ROWS):
        some = slice(begin, begin + ROWS)
        add_predictions(
            x[some][:, read].toarray(), trees, out_NxK[some], leaf_NxT[some]
        )


def to_json(model: Model) -> str:
    """Return a model as JSON, with every number in full precision."""
    trees = [
        {
            name: field.tolist() if isinstance(field, np.ndarray) else field
            for name, field in tree._asdict().items()
        }
        for tree in model.trees
    ]
    fields = model._asdict() | {"start": model.start.tolist(), "trees": trees}
    return json.dumps({"format": FORMAT, **fields})


DTYPES = {
    **dict.fromkeys(("column", "bin", "left", "right"), np.int32),
    **dict.fromkeys(("threshold", "gain", "value"), np.float64),
    **dict.fromkeys(("node_sums", "leaf_sums"), np.int64),
    "missing_left": bool,
}


def from_json(text: str) -> Model:
    """Return the model of a JSON text; its hash is that of the model written."""
    try:
        fields = json.loads(text)
        if fields.pop("format") != FORMAT:
            raise ValueError("another format")
        trees = []
        for each in fields["trees"]:
            arrays = {
                name: np.array(each[name], dtype) for name, dtype in DTYPES.items()
            }
            for name in ("node_sums", "leaf_sums"):
                arrays[name] = arrays[name].reshape(-1, 3)
            sets = tuple(tuple(s) for s in each["sets"])
            units = tuple(each["units"])
            trees.append(Tree(**each | arrays | {"sets": sets, "units": units}))
        start = np.array(fields["start"], np.float64)
        categories = tuple(fields["categories"])
        changed = {"start": start, "trees": trees, "categories": categories}
        return Model(**fields | changed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"expected the JSON of a model, got {text[:40]!r} ({error}); pass the text "
            "of to_json"
        ) from error
