"""Losses of linear models: functions of a margin z = ⟨x, w⟩ and a target y."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Loss(NamedTuple):
    """A convex loss of an example, with its derivative by the margin.

    Attributes:
      value: (margins, targets) -> losses.
      slope: (margins, targets) -> derivatives.
      smoothness: Largest second derivative.
      classes: Whether the targets are -1 and 1.
    """

    value: Function
    slope: Function
    smoothness: float
    classes: bool


def logistic(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, -targets * margins)


def logistic_slope(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -targets * expit(-targets * margins)


def squared_hinge(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.square(np.maximum(0, 1 - targets * margins))


def squared_hinge_slope(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -2 * targets * np.maximum(0, 1 - targets * margins)


def squared(margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return 0.5 * np.square(margins - targets)


LOSSES = {
    "logistic": Loss(logistic, logistic_slope, 0.25, True),
    "squared_hinge": Loss(squared_hinge, squared_hinge_slope, 2.0, True),
    "squared": Loss(squared, np.subtract, 1.0, False),
}
