"""Linear models as a Problem: the mean loss of ⟨x, w⟩, plus ½ λ ‖w‖².

`linear(x, y, "logistic", l2=1e-3)` has the field `products`, with which each rank
stores some columns of x and the same part of w. The columns may also be made where they
are needed: no rank then has all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dml.models.linear.block import Block, Work, block
from dml.models.linear.losses import LOSSES, Loss
from dml.types import BadInput, Problem, Rows, no_op
from dml.wire.plans.topology import chunks


class Columns(NamedTuple):
    """A table of features by columns.

    Attributes:
      examples: Number of rows.
      features: Number of columns.
      make: slice -> these columns of all rows, as an array or a matrix of scipy.
    """

    examples: int
    features: int
    make: Callable[[slice], Any]


class Products(NamedTuple):
    """The inner products of a linear model, whose columns are split over ranks.

    Attributes:
      columns: The features.
      targets: Target of each example.
      loss: Loss of an example.
      l2: Weight λ of ½ ‖w‖².
      work: Called with the operations and the bytes of each operation on a block.
    """

    columns: Columns
    targets: np.ndarray
    loss: Loss
    l2: float
    work: Work = no_op

    def block(self, rank: int, size: int) -> Block:
        """Return the columns of a rank; raise BadInput if a rank would have none."""
        if size > self.columns.features:
            raise BadInput(
                f"expected a feature or more for each of {size} ranks, got "
                f"{self.columns.features} features; pass fewer ranks"
            )
        part = chunks(self.columns.features, size)[rank]
        return block(self.columns.make(part), self.targets.dtype, self.work)

    def split(self, rank: int, size: int) -> tuple[np.ndarray, Callable, Callable]:
        """Return the parameters of a rank's columns, terms and gradient.

        The terms are (parameters, indices) -> the rank's terms of the margins. The
        gradient is (parameters, indices, margins) -> the mean loss, without the norm,
        and the Rows of the features that it changes.
        """
        own = self.block(rank, size)

        def terms(params_D: np.ndarray, indices: np.ndarray) -> np.ndarray:
            return own.take(indices).product(params_D)

        start_D = np.zeros(own.features, self.targets.dtype)
        return start_D, terms, partial(self.gradient, own)

    def gradient(
        self, own: Block, params_D: np.ndarray, indices: np.ndarray, margins: np.ndarray
    ) -> tuple[float, Rows]:
        """Return the mean loss of examples, and its gradient with that of the norm."""
        taken, targets = own.take(indices), self.targets[indices]
        slopes = self.loss.slope(margins, targets) / len(indices)
        loss = float(self.loss.value(margins, targets).mean())
        if self.l2 or isinstance(own.matrix, np.ndarray):
            changed: np.ndarray | slice = slice(0, len(params_D))
        else:
            changed, taken.matrix.indices = np.unique(
                taken.matrix.indices, return_inverse=True
            )
        gradient = self.l2 * params_D[changed]
        taken.add(slopes, gradient)
        return loss, Rows(changed, gradient)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the parameters of all columns from those of all ranks."""
        return np.concatenate(parts)


class Descent:
    """A Shard of parameters by gradient descent, in their own precision.

    Args:
      values: Parameters before the first update; copied.
      rate: Learning rate.
    """

    state = ()

    def __init__(self, values: np.ndarray, rate: float) -> None:
        self.values, self.rate = np.array(values), rate

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update distinct parameters."""
        self.values[rows] -= self.values.dtype.type(self.rate) * grads


def linear(
    x: Any,
    y: np.ndarray,
    loss: str = "logistic",
    l2: float = 0.0,
    dtype: Any = np.float64,
    work: Work = no_op,
) -> Problem:
    """Return the problem of a linear model without an intercept.

    Args:
      x: Features: an array, a matrix of scipy, or Columns.
      y: Targets: -1 and 1, or numbers if the loss is `squared`.
      loss: Key of LOSSES.
      l2: Weight λ of ½ ‖w‖².
      dtype: Type of features and parameters.
      work: Called with the operations and the bytes of each operation on a block.
    """
    if loss not in LOSSES:
        raise BadInput(f"expected a loss of {', '.join(LOSSES)}, got {loss!r:.40}")
    if not 0 <= l2 < np.inf:
        raise BadInput(f"expected an L2 weight of at least 0, got {l2}; correct it")
    columns = x if isinstance(x, Columns) else as_columns(x)
    check_targets(np.asarray(y), columns, LOSSES[loss])
    targets = np.asarray(y, dtype)
    products = Products(columns, targets, LOSSES[loss], float(l2), work)
    whole = cache(lambda: products.block(0, 1))

    def gradient(params: Any, indices: np.ndarray) -> tuple[float, np.ndarray]:
        params_D = np.asarray(params)
        margins = whole().take(indices).product(params_D)
        value, rows = products.gradient(whole(), params_D, indices, margins)
        gradient_D = np.zeros_like(params_D)
        gradient_D[rows.index] = rows.values
        return value, gradient_D

    def evaluate(params: Any) -> Mapping[str, float]:
        params_D = np.asarray(params)
        values = products.loss.value(whole().product(params_D), targets)
        norm = 0.5 * products.l2 * float(params_D @ params_D)
        return {"objective": float(values.mean()) + norm}

    start_D = np.zeros(columns.features, dtype)
    return Problem(start_D, columns.examples, gradient, evaluate, products=products)


def as_columns(x: Any) -> Columns:
    """Return the Columns of an array or a matrix; raise BadInput for bad numbers."""
    if sparse.issparse(x):
        x = sparse.csc_matrix(x)  # from which columns are taken fast
        values = x.data
    else:
        values = x = np.asarray(x)
    if len(x.shape) != 2 or 0 in x.shape or values.dtype.kind not in "biuf":
        raise BadInput(
            f"expected features as numbers, examples x features, got {values.dtype} "
            f"of shape {x.shape}; convert them"
        )
    if not np.isfinite(values).all():
        raise BadInput(
            "expected finite features, got NaN or infinity; replace these values"
        )
    return Columns(x.shape[0], x.shape[1], lambda part: x[:, part])


def check_targets(y: np.ndarray, columns: Columns, loss: Loss) -> None:
    """Raise BadInput for targets that do not fit to the features or the loss."""
    if y.shape != (columns.examples,) or y.dtype.kind not in "biuf":
        raise BadInput(
            f"expected a number as target of each of {columns.examples} examples, got "
            f"{y.dtype} of shape {y.shape}; convert them"
        )
    if not np.isfinite(y).all():
        raise BadInput("expected finite targets, got NaN or infinity; replace them")
    classes = np.unique(y)
    if loss.classes and not np.array_equal(classes, [-1, 1]):
        raise BadInput(
            f"expected the classes -1 and 1 as targets, got {len(classes)} values from "
            f"{classes[0]} to {classes[-1]}; encode two classes"
        )
