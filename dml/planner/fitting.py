"""Fit of the planner's numbers to published runs.

    rows ── hash ──┬─ fitted half ── coefficients: coordinate search, few percent a step
                   │                 constants: a·products + b·other = measured seconds
                   └─ other half ─── not read here

The two constants of a kind minimise the sum of absolute relative errors, with a prior:
the device's text, then the chip, then the typical values. The loss of the coefficients
is the mean error with a weight of n^(-1/2) for each of the n rows of a source, plus a
penalty for distance from the defaults, which are physical guesses.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.planner import calibration as calibrations
from dml.planner import memory, runs, seconds
from dml.planner.calibration import Calibration
from dml.planner.physics import TYPICAL, Constants, Physics
from dml.planner.published import Published, digest
from dml.planner.runs import PRECISIONS, Runs

# weights of the priors: typical values, a chip, a device's text; chosen by the error of
# rows of the fitted half that were left out in turn
PRIORS = (4.0, 8.0, 2.0)
CAP = 0.35  # error above which a row has no further weight
PENALTY = 5e-4  # of the squared logarithm of a coefficient over its default
FOLDS = 4
DIGITS = 12  # of the hashes of fitted rows that are kept
BOUNDS = {  # fractions
    "sharded": (0.2, 1.0),
    "imbalance": (0.0, 1.0),
    "gather": (0.0, 1.0),
    "hidden": (0.0, 1.0),
    "reduce": (0.0, 2.0),
    "reduce_sharded": (0.0, 2.0),
    "across": (0.0, 1.0),
    "network": (0.2, 1.0),
}
SIZE_BOUNDS = {
    "kept": (0.75, 1.05),
    "selective": (0.3, 0.9),
    "logits": (4.0, 8.0),
    "fragments": (1.0, 1.2),
    "reserve": (0.01, 0.09),
}


class Data(NamedTuple):
    """Published runs as columns."""

    runs: Runs
    seconds: np.ndarray
    kinds: tuple[tuple[str, ...], ...]  # by row: names, the closest first
    weights: np.ndarray  # of the rows in the loss


def data(rows: Sequence[Published]) -> Data:
    """Return rows as columns; each source has the weight √n of its n rows."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.source] = counts.get(row.source, 0) + 1
    weights = np.array([counts[row.source] ** -0.5 for row in rows])
    kinds = tuple(
        calibrations.kinds(row.kind, PRECISIONS[int(row.runs.precision)])
        for row in rows
    )
    times = np.array([row.seconds for row in rows])
    return Data(runs.stack([row.runs for row in rows]), times, kinds, weights)


def halves(table: Runs, physics: Physics) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of products, and of all others, without constants."""
    one = seconds.total(seconds.parts(table, physics, Constants(1.0, 0.0)))
    other = seconds.total(seconds.parts(table, physics, Constants(0.0, 1.0)))
    return one, other


def fit_pair(
    columns: np.ndarray, prior: Constants, weight: float, iterations: int = 30
) -> Constants:
    """Return the constants of least absolute relative error, near a prior.

    Args:
      columns: Seconds of products and of others over the measured seconds, by row.
      prior: Constants without rows.
      weight: Number of rows that the prior counts for.
      iterations: Number of reweighted least squares.
    """
    before = np.array(prior)
    pair = before
    ridge = np.diag(0.01 * weight / before**2 * np.array([3.0, 1.0]))
    for _ in range(iterations):
        error = columns @ pair - 1
        rows = 0.02 / np.maximum(np.abs(error), 0.02)  # absolute errors, above 2 %
        left = columns.T @ (rows[:, None] * columns) + ridge
        pair = np.linalg.solve(left, columns.T @ rows + ridge @ before)
        pair = np.clip(pair, [1.0, 0.8], [4.0, 6.0])
    return Constants(*pair.tolist())


def fit_constants(table: Data, physics: Physics) -> dict[str, Constants]:
    """Return the constants of all kinds of the rows: chips, texts, precisions."""
    columns = np.stack(halves(table.runs, physics), 1) / table.seconds[:, None]
    fitted: dict[str, Constants] = {}
    for level, weight in zip((2, 1, 0), PRIORS, strict=True):
        names = np.array([kind[level] for kind in table.kinds])
        parents = {k[level]: k[level + 1] for k in table.kinds if level < 2}
        for name in sorted(set(names)):
            prior = fitted.get(parents.get(name, ""), TYPICAL)
            fitted[name] = fit_pair(columns[names == name], prior, weight)
    return fitted


def predict(
    table: Data, physics: Physics, constants: dict[str, Constants]
) -> np.ndarray:
    """Return the predicted seconds; kinds without constants use the next name."""
    pairs = []
    for kind in table.kinds:
        known = next((name for name in kind if name in constants), None)
        pairs.append(tuple(constants[known] if known else TYPICAL))
    first, second = np.array(pairs).T
    products, others = halves(table.runs, physics)
    return first * products + second * others


def loss(table: Data, physics: Physics) -> float:
    """Return the loss of coefficients; see the module's docstring."""
    found = predict(table, physics, fit_constants(table, physics))
    errors = np.minimum(np.abs(np.log(found / table.seconds)), CAP)
    distance = [np.log(a / b) ** 2 for a, b in zip(physics, Physics(), strict=True)]
    mean = float((table.weights * errors).sum() / table.weights.sum())
    return mean + PENALTY * float(sum(distance))


def search(
    start: Any, cost: Callable[[Any], float], bounds: dict, rounds: int, step: float
) -> Any:
    """Return a named tuple of lower cost: one field at a time, times or over a step.

    Args:
      start: Named tuple of numbers.
      cost: Cost of such a tuple.
      bounds: Least and largest value of some fields.
      rounds: Number of passes over the fields.
      step: First factor; its square root follows where neither direction is better.
    """
    best, least = start, cost(start)
    steps = dict.fromkeys(start._fields, step)
    for _ in range(rounds):
        for name in start._fields:
            low, high = bounds.get(name, (0.0, np.inf))
            for factor in (steps[name], 1 / steps[name]):
                value = min(max(getattr(best, name) * factor, low), high)
                trial = best._replace(**{name: value})
                found = cost(trial)
                if found < least - 1e-6:
                    best, least = trial, found
                    break
            else:
                steps[name] **= 0.5
    return best


def fit_sizes(rows: Sequence[Published]) -> memory.MemoryCoefficients:
    """Return the coefficients of memory: published bytes, and all runs fit."""
    table = runs.stack([row.runs for row in rows])
    known = np.array([row.memory for row in rows])
    failed = np.array([row.failed for row in rows])

    def cost(sizes: memory.MemoryCoefficients) -> float:
        found = memory.total(memory.parts(table, sizes))
        errors = np.abs(np.log(found[known > 0] / known[known > 0]))
        over = np.log(found / table.memory)
        wrong = np.where(failed, np.maximum(-over, 0), np.maximum(over, 0))
        return float(errors.mean() + 0.5 * wrong.mean() + 0.3 * (wrong > 0).mean())

    return search(memory.MemoryCoefficients(), cost, SIZE_BOUNDS, 12, 1.3)


def fold(row: Published) -> int:
    """Return the fold of a fitted row, by a hash of its identity."""
    digest = hashlib.sha256(f"fold {row.id}".encode()).digest()
    return digest[0] % FOLDS


def band(rows: Sequence[Published], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return measured over predicted of rows left out, and which kinds are new."""
    ratios, new = [], []
    folds = np.array([fold(row) for row in rows])
    for index in range(FOLDS):
        inside = data([row for row, k in zip(rows, folds, strict=True) if k != index])
        left = [row for row, k in zip(rows, folds, strict=True) if k == index]
        if not left:
            continue
        outside = data(left)
        physics = search(Physics(), partial(loss, inside), BOUNDS, rounds, 1.4)
        constants = fit_constants(inside, physics)
        ratios.append(outside.seconds / predict(outside, physics, constants))
        new += [kind[0] not in constants for kind in outside.kinds]
    return np.concatenate(ratios), np.array(new)


def fit(published: Sequence[Published], rounds: int = 14) -> Calibration:
    """Return the numbers fitted to the rows of the fitted half.

    Args:
      published: All rows; those of the other half are not read.
      rounds: Passes of the coordinate search.
    """
    inside = [row for row in published if row.fitted]
    timed = [row for row in inside if not row.failed]
    table = data(timed)
    physics = search(Physics(), partial(loss, table), BOUNDS, rounds, 1.4)
    ratios, new = band(timed, max(rounds // 2, 1))
    quantiles = np.quantile(ratios, [0.1, 0.9])
    wide = np.quantile(ratios[new], [0.1, 0.9]) if new.sum() >= 5 else quantiles
    return Calibration(
        physics,
        fit_sizes(inside),
        fit_constants(table, physics),
        (float(quantiles[0]), float(quantiles[1])),
        (
            float(min(wide[0], quantiles[0])),
            float(max(wide[1], quantiles[1])),
        ),
        tuple(digest(row.row)[:DIGITS] for row in inside),
    )
