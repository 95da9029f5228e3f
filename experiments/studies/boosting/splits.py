"""Words and seconds of a tree by split of a sparse table: counted, and by formula.

    rows       Σ over histograms of S slots: every rank sends all columns
    columns    a bit for each row of a node
    R x C      S/C slots, and bits of 1/R of the rows

Virtual ranks train two rounds with the code of `dml.boosting`; the messages of the
second tree take the time of the network. Computation takes the time of a stated core,
on the slowest rank: nanoseconds for a row of a node, a stored value, a slot of the
block that is summed, and a slot of the rank's part that is searched. Blocks of columns
have equal computation: a few columns of Zipf's law have most values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.boosting import Data, Model, Settings, train
from dml.boosting.costs import Histogram, histograms, tree_words
from dml.boosting.fixed import FLUSH
from dml.boosting.histograms import width
from dml.boosting.keys import sparse_columns, starts_of
from dml.boosting.messages import part
from dml.boosting.search import WORDS
from dml.boosting.tree import Tree
from dml.runs.writers import Row
from dml.types import Comm
from dml.wire.comm import Metered
from dml.wire.costs.allreduce import Job, Rates, seconds

WORD = 8  # bytes
READ = 3  # times that a row is in a histogram of a tree, about
Split = tuple[int, int]  # blocks of rows, and of columns


class Core(NamedTuple):
    """Seconds of a core for a row, a stored value, and a slot summed or searched."""

    row: float
    value: float
    slot: float
    search: float


class Task(NamedTuple):
    """A sparse table, the settings of its trees, and the machine.

    Attributes:
      x: Features, CSR.
      y: Targets.
      settings: Settings.
      core: Core of each rank.
      rates: Rates of messages.
      slots: First slot of each column, and the number of slots; no column has more
        values than bins.
      values: First stored value of each column, and their number.
    """

    x: Any
    y: np.ndarray
    settings: Settings
    core: Core
    rates: Rates
    slots: np.ndarray
    values: np.ndarray

    def cuts(self, blocks: int) -> np.ndarray:
        """Return the first column of each block, and the number of columns."""
        core, columns = self.core, len(self.slots) - 1
        cost = READ * core.value * self.values + self.settings.leaves * self.slots * (
            core.slot + core.search
        )
        wanted = cost[-1] * np.arange(1, blocks) / blocks
        return np.concatenate([[0], np.searchsorted(cost, wanted), [columns]])


def task_of(
    x: Any, y: np.ndarray, settings: Settings, core: Core, rates: Rates
) -> Task:
    """Return the task of a table."""
    slots = starts_of(sparse_columns(x).counts)
    values = starts_of(np.bincount(x.indices, minlength=x.shape[1]))
    return Task(x, y, settings, core, rates, slots, values)


class Grown(NamedTuple):
    """A model, and what its trees after the first cost on virtual ranks.

    Attributes:
      model: The model.
      words: Words sent by all ranks.
      seconds: Seconds of messages.
    """

    model: Model
    words: int
    seconds: float


class Routed(NamedTuple):
    """Measured work of the rows of a table in a tree of M nodes.

    Attributes:
      tree: The tree.
      rows_RxM: Rows of each node and leaf, in each of R blocks: nodes, then leaves.
      values_M: Stored values of the rows of each node and leaf.
    """

    tree: Tree
    rows_RxM: np.ndarray
    values_M: np.ndarray

    def stored(self, made: Sequence[Histogram]) -> float:
        """Return the stored values of the rows of histograms."""
        nodes = len(self.tree.column)
        places = [h.node if h.node >= 0 else nodes - 1 - h.node for h in made]
        return float(self.values_M[places].sum())


def trained(
    size: int, rates: Rates, settings: Settings, block: Callable[[int], Data]
) -> Grown:
    """Train on virtual ranks, each with the block of its number."""

    def program(comm: Comm) -> tuple[Model, int, float]:
        counted, marks = Metered(comm), list[tuple[int, float]]()

        def note(round_: int, losses: dict[str, float]) -> None:
            marks.append((counted.bytes_sent // WORD, comm.Wtime()))

        model = train(counted, block(comm.rank), settings, report=note).model
        return model, marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]

    network = sim.Uniform(rates.alpha, rates.beta, rates.gamma)
    models, words, took = zip(*sim.run(program, size, network), strict=True)
    return Grown(models[0], sum(words), max(took))


def grown(task: Task, split: Split) -> Grown:
    """Train on virtual ranks of a grid."""
    (down, across), cuts = split, task.cuts(split[1])

    def block(rank: int) -> Data:
        row, column = divmod(rank, across)
        rows = part(len(task.y), down, row)
        own = task.x[rows, cuts[column] : cuts[column + 1]]
        return Data(own, task.y[rows])

    settings = replace(task.settings, split=f"{down}x{across}")
    return trained(down * across, task.rates, settings, block)


def routed(task: Task, tree: Tree, leaves: np.ndarray, blocks: int) -> Routed:
    """Return the rows of the nodes of a tree, by block, from the leaf of each row."""
    count, stored = len(tree.value), np.diff(task.x.indptr)
    rows = [
        np.bincount(leaves[part(len(leaves), blocks, r)], minlength=count)
        for r in range(blocks)
    ]
    of_leaves = np.vstack([*rows, np.bincount(leaves, stored, count)])
    of_nodes = np.zeros((blocks + 1, len(tree.column)))
    for i in reversed(range(len(tree.column))):  # children have higher numbers
        for child in (tree.left[i], tree.right[i]):
            node = of_nodes[:, child] if child >= 0 else of_leaves[:, -1 - child]
            of_nodes[:, i] += node
    sums = np.hstack([of_nodes, of_leaves])
    return Routed(tree, sums[:-1].astype(np.int64), sums[-1])


def words(task: Task, found: Routed, split: Split) -> int:
    """Return the words of a tree by the formula."""
    nodes = found.rows_RxM[:, : len(found.tree.column)]
    bits, counted = (-(-nodes // 64)).sum(axis=0), task.settings.min_rows > 1
    slots = int(task.slots[-1])
    return tree_words(found.tree, task.settings, split, slots, counted, bits)


def parts_of(task: Task, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots of each block of columns, and of its largest part."""
    cuts, down = task.cuts(split[1]), split[0]
    largest = []
    for first, end in zip(cuts[:-1], cuts[1:], strict=True):
        edges = first + (end - first) * np.arange(down + 1) // down
        largest.append(np.diff(task.slots[edges]).max())
    return np.diff(task.slots[cuts]), np.array(largest)


def computation(task: Task, found: Routed, split: Split) -> float:
    """Return the seconds of the slowest rank for a tree, with equal parts of rows."""
    (down, across), core, nodes = split, task.core, len(found.tree.column)
    made = [*histograms(found.tree, task.settings)]
    rows = sum(each.rows for each in made) + int(found.rows_RxM[:, :nodes].sum())
    rows += 2 * len(task.y)  # gradients; scores and sums of leaves
    shares = np.diff(task.values[task.cuts(across)]) / task.values[-1]
    slots, largest = parts_of(task, split)
    own = core.value * found.stored(made) / down * shares
    own += len(made) * (core.slot * slots + core.search * largest)
    return core.row * rows / down + float(own.max())


def messages(task: Task, found: Routed, split: Split) -> float:
    """Return the seconds of the messages of a tree, with the largest parts."""
    (down, across), (alpha, beta, gamma, *_) = split, task.rates
    nodes, total = len(found.tree.column), 0.0
    counted = task.settings.min_rows > 1
    largest = int(parts_of(task, split)[1].max())

    def add(length: int) -> float:
        return seconds("halving_doubling", Job(down, length, WORD), task.rates)

    for each in histograms(found.tree, task.settings):
        sent = WORD * largest * width(each.rows <= FLUSH, counted)
        total += (down - 1) * (alpha + sent * (beta + gamma))
        total += (down * across - 1) * (alpha + WORD * WORDS * each.searched * beta)
    for rows in found.rows_RxM[:, :nodes].max(axis=0).tolist():
        bits = WORD * -(-rows // 64)
        total += (across - 1).bit_length() * (alpha + bits * beta) + add(1)
    return total + add(3) + add(2 * (nodes + 1))


def predicted(task: Task, found: Routed, split: Split) -> dict[str, float]:
    """Return words and seconds of a tree by the formulas."""
    own = computation(task, found, split)
    took = own + messages(task, found, split)
    return {"words": words(task, found, split), "seconds": took}


def square(size: int) -> Split:
    """Return the grid of p ranks that is nearest to a square, columns not fewer."""
    down = next(r for r in range(int(size**0.5), 0, -1) if size % r == 0)
    return down, size // down


def counted_rows(task: Task, splits: Sequence[Split]) -> Iterator[Row]:
    """Yield words and seconds on virtual ranks beside those of the formulas."""
    for split in splits:
        made = grown(task, split)
        leaves = made.model.leaves(task.x)[:, -1]
        found = routed(task, made.model.trees[-1], leaves, split[0])
        expected = predicted(task, found, split)
        yield {
            "split": f"{split[0]}x{split[1]}",
            "p": split[0] * split[1],
            "words": made.words,
            "formula": expected["words"],
            "seconds": made.seconds + computation(task, found, split),
            "predicted": expected["seconds"],
            "sha256": made.model.sha256,
        }


def predicted_rows(task: Task, sizes: Sequence[int]) -> Iterator[Row]:
    """Yield words and seconds of rows, columns and a grid by number of ranks."""
    model = train(None, Data(task.x, task.y), task.settings).model
    tree, leaves = model.trees[-1], model.leaves(task.x)[:, -1]
    for size in sizes:
        row: Row = {"p": size}
        splits = {"rows": (size, 1), "columns": (1, size), "grid": square(size)}
        for name, split in splits.items():
            found = routed(task, tree, leaves, split[0])
            expected = predicted(task, found, split)
            row |= {f"{key}_{name}": value for key, value in expected.items()}
        row["shape"] = "{}x{}".format(*splits["grid"])
        row["fewer"] = row["words_rows"] / max(row["words_columns"], 1)
        row |= additions(task, found)
        yield row


def additions(task: Task, found: Routed) -> dict[str, float]:
    """Return the additions to histograms of a tree: stored values, and all values."""
    made = [*histograms(found.tree, task.settings)]
    zeros = len(made) * float(task.slots[-1])  # the sums of the bins of zero
    return {
        "stored_additions": found.stored(made) + zeros,
        "all_additions": float(sum(each.rows for each in made)) * task.x.shape[1],
    }
