"""Settings and data of boosting, and their checks.

The bounds of the fixed point: gradients have FINE = 30 bits and a sign, sums of a leaf
64 bits, so that 2^32 rows cannot overflow; a rank numbers its rows by 32 bits.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dml.types import BadInput

MAX_ROWS = 1 << 32  # over all ranks: 2^32 · 2^30 < 2^63
MAX_LOCAL = (1 << 31) - 1
MAX_BINS = 255  # of values; the bin of missing values is one more
MAX_CATEGORY = (1 << 31) - 1
MAX_VALUE = 1e100  # of targets and weights, so that squares are finite
LOSSES = ("squared", "logistic", "softmax")


@dataclass(frozen=True)
class Settings:
    """Settings of boosting; equal on all ranks.

    Attributes:
      loss: "squared", "logistic" (targets 0 and 1) or "softmax" (0, 1, …, classes - 1).
      classes: Number of classes of softmax.
      rounds: Number of rounds; softmax grows a tree per class in a round.
      rate: Factor of the values of leaves.
      leaves: Largest number of leaves of a tree.
      depth: Largest depth of a tree; 0: no limit.
      bins: Largest number of bins of a column, without the bin of missing values.
      l1: L1 weight α of the values of leaves.
      l2: L2 weight λ of the values of leaves.
      min_rows: Smallest number of rows of a leaf.
      min_hessian: Smallest sum of second derivatives of a leaf.
      min_gain: Gain that a split must exceed.
      row_share: Share of the rows that a round reads.
      column_share: Share of the columns that a round reads.
      seed: Seed of both shares.
      stop_after: Number of rounds without a smaller loss of the last evaluation set
        after which training ends; 0: never.
      categories: Numbers of the columns whose values are categories 0, 1, 2, …
      monotone: Direction of each column, 1, -1 or 0; empty: no constraints.
      split: "rows", "columns", "RxC" such as "2x4", or "vote".
      shards: Number of shards of the rows that vote.
      top: Number of columns that a shard proposes, and that a vote elects.
    """

    loss: str = "squared"
    classes: int = 1
    rounds: int = 100
    rate: float = 0.1
    leaves: int = 31
    depth: int = 0
    bins: int = 255
    l1: float = 0.0
    l2: float = 1.0
    min_rows: int = 20
    min_hessian: float = 1e-3
    min_gain: float = 0.0
    row_share: float = 1.0
    column_share: float = 1.0
    seed: int = 0
    stop_after: int = 0
    categories: tuple[int, ...] = ()
    monotone: tuple[int, ...] = ()
    split: str = "rows"
    shards: int = 16
    top: int = 20

    @property
    def outputs(self) -> int:
        return self.classes if self.loss == "softmax" else 1


class Data(NamedTuple):
    """The part of a table that a rank has: a block of rows and columns.

    Attributes:
      x: Features of the block, float32 or float64: an array, or a sparse matrix of
        SciPy, whose values that are not stored are zeros. NaN is a missing value.
      y: Targets of the rows.
      weights: Weights of the rows, above 0; None: 1.
    """

    x: Any
    y: np.ndarray
    weights: np.ndarray | None = None


RANGES = {  # of settings: least and most
    "classes": (1, 10_000),
    "rounds": (0, 10**6),
    "rate": (1e-12, 1e6),
    "leaves": (2, 1 << 16),
    "depth": (0, 1 << 16),
    "bins": (2, MAX_BINS),
    "l1": (0, 1e12),
    "l2": (0, 1e12),
    "min_rows": (0, MAX_ROWS),
    "min_hessian": (0, 1e12),
    "min_gain": (0, 1e300),
    "row_share": (1e-9, 1),
    "column_share": (1e-9, 1),
    "seed": (0, (1 << 32) - 1),
    "stop_after": (0, 10**6),
    "shards": (1, 1 << 16),
    "top": (1, 1 << 16),
}


def check_settings(settings: Settings) -> None:
    """Raise BadInput for a setting outside of its range."""
    if settings.loss not in LOSSES:
        raise BadInput(
            f"expected a loss of {', '.join(LOSSES)}, got {settings.loss!r}; correct it"
        )
    for name, (least, most) in RANGES.items():
        value = getattr(settings, name)
        if not (math.isfinite(value) and least <= value <= most):
            raise BadInput(
                f"expected {name} from {least} to {most}, got {value}; correct it"
            )
    if settings.loss == "softmax" and settings.classes < 2:
        raise BadInput(
            f"expected at least 2 classes, got {settings.classes}; pass classes=2"
        )
    if not set(settings.monotone) <= {-1, 0, 1}:
        raise BadInput(
            f"expected directions -1, 0 or 1 in monotone, got {settings.monotone}; "
            "correct it"
        )
    constrained = {i for i, sign in enumerate(settings.monotone) if sign}
    if constrained & set(settings.categories):
        raise BadInput(
            "expected monotone columns that are no categories, got column "
            f"{min(constrained & set(settings.categories))} as both; remove one"
        )


def check_data(data: Data, settings: Settings, first_column: int) -> str:
    """Return the error in this rank's part; "" without one."""
    x, y, weights = data.x, np.asarray(data.y), data.weights
    if not isinstance(x, np.ndarray) and not sparse.issparse(x):
        kind = type(x).__name__
        return f"expected a NumPy array or SciPy matrix x, got a {kind}; convert it"
    if x.ndim != 2 or x.dtype not in (np.float32, np.float64):
        kind = f"{x.dtype} of shape {x.shape}"
        return f"expected a matrix x of float32 or float64, got {kind}; convert it"
    n = x.shape[0]
    if y.shape != (n,):
        return f"expected {n} targets, one for each row, got shape {y.shape}"
    if n > MAX_LOCAL:
        return f"expected at most {MAX_LOCAL} rows on a rank, got {n}; add ranks"
    if np.isinf(x.data if sparse.issparse(x) else x).any():
        return "expected finite or missing features, got an infinite one; pass NaN"
    if not (np.abs(y) <= MAX_VALUE).all():
        wrong = y[~(np.abs(y) <= MAX_VALUE)][0]
        return f"expected targets of at most 1e100, got {wrong:g}; remove its row"
    if settings.loss != "squared" and n:
        most = max(settings.classes, 2) - 1
        if (y != np.floor(y)).any() or y.min() < 0 or y.max() > most:
            wrong = y[(y != np.floor(y)) | (y < 0) | (y > most)][0]
            return f"expected targets 0 to {most}, got {wrong:g}; number the classes"
    if weights is not None:
        weights = np.asarray(weights)
        if weights.shape != (n,):
            return f"expected {n} weights, got shape {weights.shape}; pass one a row"
        valid = (weights > 0) & (weights <= MAX_VALUE)
        if not valid.all():
            wrong = weights[~valid][0]
            return f"expected weights above 0, got {wrong:g}; remove rows of weight 0"
    return check_categories(x, settings, first_column)


def check_categories(x: Any, settings: Settings, first_column: int) -> str:
    """Return the error in the values of categories; "" without one."""
    for column in settings.categories:
        if 0 <= column - first_column < x.shape[1]:
            values = x[:, [column - first_column]]
            values = values.data if sparse.issparse(values) else values
            values = values[~np.isnan(values)]
            if (
                (values != np.floor(values)) | (values < 0) | (values > MAX_CATEGORY)
            ).any():
                return (
                    f"expected categories 0, 1, 2, … in column {column}, got "
                    "another number; number them"
                )
    return ""


def check_sizes(rows: int, columns: int, settings: Settings) -> None:
    """Raise BadInput for sizes of the whole table; equal on all ranks."""
    if not 0 < rows <= MAX_ROWS:
        raise BadInput(
            f"expected 1 to 2^32 rows, whose sums fit in 64 bits of fixed point, got "
            f"{rows}; pass {'rows' if rows < 1 else 'a sample'}"
        )
    if not columns:
        raise BadInput("expected at least one column, got none; pass features")
    if settings.monotone and len(settings.monotone) != columns:
        raise BadInput(
            f"expected {columns} directions in monotone, got "
            f"{len(settings.monotone)}; pass one a column"
        )
    wrong = [c for c in settings.categories if not 0 <= c < columns]
    if wrong:
        raise BadInput(
            f"expected categories of columns 0 to {columns - 1}, got {wrong[0]}; "
            "correct it"
        )
