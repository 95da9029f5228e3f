"""A dense network made sparse by dropout (Srivastava 2014), unit by unit.

    image ── w_in, b ──→ tanh, of kept units only, / keep ── w_out ──→ scores ──→ loss

A row of the table is a hidden unit: its input weights, its bias, its output weights. An
edge is an image with a mask, and its rows are the units that the mask keeps; the other
units have no gradient. A fixed number of masks per image is drawn once, so that the
objective is a finite sum. With tanh it is smooth; with relu, runs would stop at
different kinks.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import descend as move
from dml.models.sparse.problem import dot, sum_gradients
from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import same_data as with_rate
from dml.models.sparse.problem import zero_decay as decay
from dml.types import BadInput, Batch, Edges

__all__ = ["decay", "gradient", "move", "objective", "optimum", "with_rate", "settle"]


class Masked(NamedTuple):
    """Images with masks: edge e is an image and the units that its mask keeps."""

    edges: Edges
    images: np.ndarray  # int64: index of each edge's image
    inputs_BxI: np.ndarray  # I pixels of B images
    targets: np.ndarray  # int32: class of each image
    keep: float  # probability that a mask keeps a unit
    mu: float  # weight of ½ |row|² of each kept unit


def draw_masks(
    batch: Batch,
    hidden: int,
    keep: float,
    masks: int,
    seed: int,
    mu: float = 0.0,
    *,
    dtype: Any = np.float32,
) -> Masked:
    """Draw masks for each image; a mask keeps at least one unit.

    Edges are ordered by mask, then by image in the order of the batch.

    Args:
      batch: The images.
      hidden: Number of units.
      keep: Probability that a mask keeps a unit.
      masks: Number of masks per image.
      seed: Random seed of the masks.
      mu: Weight of ½ |row|² of each kept unit.
      dtype: Dtype of the images.
    """
    count = len(batch.targets)
    if not (0 < keep <= 1 and hidden > 0 and masks > 0 and count > 0):
        raise BadInput(
            "expected keep in (0, 1], and at least one unit, mask and image, got "
            f"{keep=}, {hidden=}, {masks=}, {count} images; correct them"
        )
    rng = np.random.default_rng(seed)
    kept_ExH = rng.random((masks * count, hidden)) < keep
    is_empty_E = ~kept_ExH.any(axis=1)
    kept_ExH[is_empty_E, rng.integers(0, hidden, is_empty_E.sum())] = True
    starts = np.concatenate([[0], np.cumsum(kept_ExH.sum(axis=1))])
    edges = Edges(starts.astype(np.int64), np.nonzero(kept_ExH)[1].astype(np.uint32))
    inputs_BxI = np.ascontiguousarray(batch.inputs.reshape(count, -1), dtype)
    targets = batch.targets.astype(np.int32)
    images = np.tile(np.arange(count), masks)
    return Masked(edges, images, inputs_BxI, targets, float(keep), float(mu))


def start(
    hidden: int, inputs: int, classes: int, seed: int, dtype: Any = np.float32
) -> np.ndarray:
    """Draw a table by LeCun's rule for input and output weights; biases are 0.

    Args:
      hidden: Number of units.
      inputs: Number of pixels.
      classes: Number of classes.
      seed: Random seed.
      dtype: Dtype of the table.
    """
    rng = np.random.default_rng(seed)
    table_HxD = rng.standard_normal((hidden, inputs + 1 + classes))
    table_HxD[:, :inputs] *= np.sqrt(1 / inputs)
    table_HxD[:, inputs] = 0
    table_HxD[:, inputs + 1 :] *= np.sqrt(1 / hidden)
    return table_HxD.astype(dtype)


@njit(nogil=True, cache=True)
def activation(table, unit, inputs, image):
    """Return the activation of a unit for an image."""
    width = inputs.shape[1]
    return np.tanh(dot(table, unit, inputs, image, width) + table[unit, width])


@njit(nogil=True, cache=True)
def entropy(scores, target):
    """Return the cross entropy; scores become its gradient, p - 1 at the target."""
    largest, target_score, total = scores[0], scores[target], scores.dtype.type(0)
    for c in range(1, len(scores)):
        largest = max(largest, scores[c])
    for c in range(len(scores)):
        scores[c] = np.exp(scores[c] - largest)
        total += scores[c]
    for c in range(len(scores)):
        scores[c] /= total
    scores[target] -= 1
    return np.log(total) + largest - target_score


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    """Return the loss of edge e; set the gradients of the kept units."""
    scalar, image = table.dtype.type, data.images[e]
    first, last = data.edges.starts[e], data.edges.starts[e + 1]
    width = data.inputs_BxI.shape[1]
    mu, scale = scalar(data.mu), scalar(1 / data.keep)
    scores = np.zeros(table.shape[1] - width - 1, table.dtype)
    squares = scalar(0)
    for k in range(first, last):
        unit = data.edges.rows[k]
        active = activation(table, unit, data.inputs_BxI, image)
        grads[k - first, width] = active  # temporary: read below, then overwritten
        squares += dot(table, unit, table, unit, table.shape[1])
        for c in range(len(scores)):
            scores[c] += scale * active * table[unit, width + 1 + c]
    loss = entropy(scores, data.targets[image])
    for k in range(first, last):
        unit, s = data.edges.rows[k], k - first
        active, slope = grads[s, width], scalar(0)
        for c in range(len(scores)):
            out = table[unit, width + 1 + c]
            slope += scores[c] * out
            grads[s, width + 1 + c] = scale * active * scores[c] + mu * out
        slope *= scale * (scalar(1) - active * active)
        for i in range(width):
            grads[s, i] = slope * data.inputs_BxI[image, i] + mu * table[unit, i]
        grads[s, width] = slope + mu * table[unit, width]
    return loss + scalar(0.5) * mu * squares, True


def objective(table: np.ndarray, data: Masked) -> float:
    """Return the mean of all edges' losses."""
    return loss_and_gradient(table, data)[0]


def loss_and_gradient(table: np.ndarray, data: Masked) -> tuple[float, np.ndarray]:
    """Return the mean loss of all edges, and its gradient."""
    total_HxD = np.zeros(table.shape)
    count = len(data.images)
    edges, units = np.arange(count), np.arange(len(table))
    loss, _ = sum_gradients(gradient, table, data, edges, units, total_HxD)
    return loss / count, total_HxD / count


def accuracy(table: np.ndarray, batch: Batch) -> float:
    """Return the share of images classified correctly with all units kept."""
    inputs_BxI = batch.inputs.reshape(len(batch.targets), -1)
    width = inputs_BxI.shape[1]
    units_BxH = inputs_BxI @ table[:, :width].T + table[:, width]
    scores_BxC = np.tanh(units_BxH) @ table[:, width + 1 :]
    return float((scores_BxC.argmax(axis=1) == batch.targets).mean())


def optimum(data: Masked, start_HxD: np.ndarray, steps: int = 2000) -> np.ndarray:
    """Return a local optimum of the finite sum from this start, by L-BFGS in float64.

    The loss is not convex: other methods may end in other optima, higher or lower.

    Args:
      data: Images with masks.
      start_HxD: Table of the start.
      steps: Maximum number of iterations.
    """
    from scipy.optimize import minimize

    double = data._replace(inputs_BxI=data.inputs_BxI.astype(np.float64))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        mean, slopes_HxD = loss_and_gradient(flat.reshape(start_HxD.shape), double)
        return mean, slopes_HxD.ravel()

    result = minimize(
        loss,
        start_HxD.astype(np.float64).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20},
    )
    return result.x.reshape(start_HxD.shape).astype(start_HxD.dtype)
