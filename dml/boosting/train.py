"""Histogram gradient boosting with one model for every number and split of ranks.

    bins ──► start ──► gradients ──► tree ──► scores ──► losses ──► stop?
                       ▲     one tree per output and round     │
                       └───────────────────────────────────────┘

Everything that ranks add up is an integer, and everything else is computed from sums
that are equal on all ranks, or row by row. So the model is a function of the rows:
without samples of rows, of the set of rows in any order.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dml.boosting import fixed, losses, sampling
from dml.boosting.grow import Gradients, Leaf, grow
from dml.boosting.messages import grid, largest
from dml.boosting.model import Model
from dml.boosting.rows import add_value, sort_binned
from dml.boosting.settings import Data, Settings, check_settings
from dml.boosting.sparse import SparseRows, canonical
from dml.boosting.table import Place, Table, located, make_table, resolved
from dml.boosting.tree import Tree
from dml.types import Comm

CHUNK = 1 << 14  # rows whose gradients stay in the cache
Report = Callable[[int, dict[str, float]], object]


class Trained(NamedTuple):
    """A model and the losses after each round, by set: "training", "0", "1", …"""

    model: Model
    curves: dict[str, list[float]]
    best: int  # number of rounds of the model


def train(
    comm: Comm | None,
    data: Data,
    settings: Settings,
    evaluate: Sequence[Data] = (),
    report: Report | None = None,
    training_loss: bool = False,
) -> Trained:
    """Train a model; collective, with an equal result on all ranks.

    Args:
      comm: Communicator of dml or of mpi4py; None: one process.
      data: This rank's block of the table.
      settings: Settings, equal on all ranks.
      evaluate: This rank's blocks of evaluation sets, of the same columns.
      report: report(round, losses), called after each round on all ranks.
      training_loss: Whether the loss of the training set is computed.
    """
    check_settings(settings)
    place_of = grid(comm, settings.split)
    data, *evaluate = map(with_rows, [data, *evaluate])
    place = located(place_of, [data, *evaluate], settings)
    table = make_table(place_of, place, data, evaluate, settings)
    boosting = Boosting(table, place, data, evaluate)
    curves: dict[str, list[float]] = {}
    trees: list[Tree] = []
    best, last = 0, str(len(evaluate) - 1)
    for round_ in range(settings.rounds):
        trees += boosting.round(round_)
        found = boosting.losses(training_loss)
        for name, value in found.items():
            curves.setdefault(name, []).append(value)
        if report:
            report(round_, found)
        if evaluate and curves[last][best] > curves[last][-1]:
            best = round_
        if evaluate and settings.stop_after and round_ - best >= settings.stop_after:
            break
    stops = bool(evaluate and settings.stop_after)
    kept = best + 1 if stops and trees else len(trees) // settings.outputs
    trees = resolved(table, trees[: kept * settings.outputs])
    columns = int(place.firsts[-1])
    categories = tuple(sorted(set(settings.categories)))
    model = Model(settings.loss, boosting.start, trees, columns, categories)
    return Trained(model, curves, kept)


def with_rows(data: Data) -> Data:
    """Return a block whose sparse matrix is stored by row."""
    return data._replace(x=canonical(data.x)) if sparse.issparse(data.x) else data


class Boosting:
    """Scores, gradients and trees of the rows of a rank."""

    def __init__(
        self, table: Table, place: Place, data: Data, evaluate: Sequence[Data]
    ):
        blocks = [data, *evaluate]
        self.table, self.place = table, place
        self.targets = [np.asarray(each.y, np.float64) for each in blocks]
        self.weights = [
            np.zeros(0) if each.weights is None else np.asarray(each.weights, float)
            for each in blocks
        ]
        self.edges = np.concatenate([[0], np.cumsum([len(y) for y in self.targets])])
        bounds = np.array([len(self.weights[0]) > 0, self.weights[0].max(initial=1.0)])
        weighted, self.heaviest = largest(table.grid.down, bounds.astype(float))
        settings = table.settings
        self.constant = settings.loss == "squared" and not weighted
        if self.constant:
            self.table = table._replace(counted=False)
        self.totals = [
            self.total(weights if len(weights) else np.ones(len(y)))
            for weights, y in zip(self.weights, self.targets, strict=True)
        ]
        self.start = self.first_scores()
        count = len(self.targets[0])  # buffers of a tree, kept: new pages take time
        self.fine = np.empty(2 * count, np.int32)
        self.packed = np.empty(count, np.int64)
        self.rows = np.empty(int(self.edges[-1]), np.int32)
        self.numbers = np.arange(count, dtype=np.int32)  # of the rows, as stored
        self.scores = np.tile(self.start, (int(self.edges[-1]), 1))

    def total(self, values: np.ndarray) -> float:
        """Return the exact sum of values of all rows, rounded; collective."""
        return fixed.total(self.table.grid.down, values)

    def first_scores(self) -> np.ndarray:
        """Return the best constant scores."""
        settings, y = self.table.settings, self.targets[0]
        w = self.weights[0] if len(self.weights[0]) else np.ones(len(y))
        if settings.loss == "squared":
            return np.array([self.total(w * y) / self.totals[0]])
        if settings.loss == "logistic":
            share = self.total(w * y) / self.totals[0]
            share = min(max(share, 1e-15), 1 - 1e-15)
            return np.array([losses.log(share) - losses.log(1 - share)])
        shares = [
            self.total(w * (y == c)) / self.totals[0] for c in range(settings.classes)
        ]
        return np.array([losses.log(max(share, 1e-15)) for share in shares])

    def round(self, round_: int) -> list[Tree]:
        """Grow the trees of a round, and add their values to the scores; collective."""
        table, s = self.table, self.table.settings
        count = len(self.targets[0])
        order, used = self.order(round_)
        columns = int(self.place.firsts[-1])
        read = sampling.columns(s.seed, round_, s.column_share, columns)
        first = int(self.place.firsts[table.grid.column])
        read = read[first + table.slots.first : first + table.slots.last]
        scores = self.scores[:count]
        if s.loss == "softmax":
            made = np.empty_like(scores)
            losses.probabilities(scores, made)
            scores = made
        trees = []
        for c in range(s.outputs):
            gradients = self.gradients(scores, c)
            np.copyto(self.rows, order)
            tree, leaves, rows = grow(table, gradients, self.rows, used, read, c)
            self.add(tree, leaves, rows)
            trees.append(tree)
        trained = round_ + 1
        if trained & (trained - 1) == 0 and trained < s.rounds:  # a power of two
            self.sort_rows(rows)
        return trees

    def sort_rows(self, rows: np.ndarray) -> None:
        """Store the training rows in the order of the leaves of a tree.

        Trees of neighbouring rounds divide rows alike, so that the rows of a node are
        then close together in memory. No sum depends on their order.
        """
        binned, count = self.table.binned, len(self.targets[0])
        if isinstance(binned, SparseRows) or self.table.shards:
            return
        order = rows[rows < count].astype(np.intp)  # converted once
        sort_binned(binned, order)
        self.numbers = self.numbers[order]
        self.targets[0] = self.targets[0][order]
        if len(self.weights[0]):
            self.weights[0] = self.weights[0][order]
        self.scores[:count] = self.scores.take(order, axis=0)

    def order(self, round_: int) -> tuple[np.ndarray, int]:
        """Return the rows of a rank, those in a round first, and their number."""
        s, count, end = self.table.settings, len(self.targets[0]), int(self.edges[-1])
        order, first = np.arange(end, dtype=np.int32), self.place.first_row
        if s.row_share < 1:
            chosen = sampling.rows(s.seed, round_, s.row_share, first, count)
            chosen = chosen[self.numbers]
            inside = np.concatenate([chosen, np.zeros(end - count, bool)])
            return np.concatenate([order[inside], order[~inside]]), int(chosen.sum())
        return order, count

    def gradients(self, scores: np.ndarray, class_: int) -> Gradients:
        """Return the fixed-point gradients of the training rows; collective."""
        s, bound, h_bound = self.table.settings, self.heaviest, self.heaviest
        parts = [
            slice(begin, begin + CHUNK)
            for begin in range(0, len(self.targets[0]), CHUNK)
        ]
        if s.loss == "squared":
            each = [
                np.abs(self.derivatives(scores, 0, part)[0]).max() for part in parts
            ]
            own = np.array([max(each, default=0.0)])
            bound = largest(self.table.grid.down, own).item()
        else:
            h_bound *= s.classes / (s.classes - 1) / 4 if s.loss == "softmax" else 0.25
        e, h_e = fixed.exponent(bound), fixed.exponent(h_bound)
        scales = 2.0**e, 2.0**h_e
        for part in parts:
            g, h = self.derivatives(scores, class_, part)
            fine = self.fine[2 * part.start : 2 * part.stop]
            fixed.quantise(g, h, scales, self.constant, fine, self.packed[part])
        units = 2.0**-e, 1.0 if self.constant else 2.0**-h_e
        coarse = 2.0**fixed.SHIFT
        h_coarse = 1.0 if self.constant else units[1] * coarse
        return Gradients(
            fine=self.fine,
            packed=self.packed,
            g_unit=units[0] * coarse,
            h_unit=h_coarse,
            g_fine=units[0],
            h_fine=units[1],
            constant=self.constant,
        )

    def derivatives(
        self, scores: np.ndarray, class_: int, part: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return g and h of a part of the training rows."""
        y = self.targets[0][part]
        g, h = np.empty(len(y)), np.empty(len(y))
        losses.GRADIENTS[self.table.settings.loss](scores[part], y, class_, g, h)
        if len(self.weights[0]):
            g *= self.weights[0][part]
            h *= self.weights[0][part]
        return g, h

    def add(self, tree: Tree, leaves: list[Leaf], rows: np.ndarray) -> None:
        """Add the values of leaves to the scores of their rows."""
        for leaf, value in zip(leaves, tree.value, strict=True):
            add_value(self.scores, tree.output, rows[leaf.begin : leaf.end], value)

    def losses(self, training: bool) -> dict[str, float]:
        """Return the mean loss of each evaluation set, and of the training set."""
        made, kind = {}, losses.LOSSES[self.table.settings.loss]
        for i, (y, weights) in enumerate(zip(self.targets, self.weights, strict=True)):
            if i or training:
                values = np.empty(len(y))
                scores = self.scores[self.edges[i] : self.edges[i + 1]]
                kind(scores, y, values)
                if len(weights):
                    values *= weights
                total = self.total(values)
                name = str(i - 1) if i else "training"
                made[name] = total / self.totals[i] if self.totals[i] else 0.0
        return made
