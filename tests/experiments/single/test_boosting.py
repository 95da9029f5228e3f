"""The single file of boosting has the trees and words of dml's boosting."""

import numpy as np
import pytest

from dml import sim
from dml.boosting import Data, Settings, share, train
from dml.wire.comm import Metered
from experiments.single import boosting
from tests.experiments.single.proof import broken, ran

ROWS, COLUMNS, ROUNDS = 200, 5, 4
SIZES = (1, 2, 3, 4, 6)


def table():
    rng = np.random.default_rng(3)
    bins = rng.integers(0, boosting.BINS, (ROWS, COLUMNS))
    y = np.sin(bins[:, 0]) + bins[:, 1] * bins[:, 2] / 99 + rng.normal(0, 0.1, ROWS)
    return bins, y


def single(size, rounds=ROUNDS, module=boosting, start=0.5):
    """Return the trees of each rank, and its bytes."""
    bins, y = table()

    def program(comm):
        own, _ = share(comm.rank, size, "rows", ROWS, COLUMNS)
        return module.boost(comm, bins[own], y[own], start, rounds)[0]

    return ran(program, size)


def modular(size, rounds=ROUNDS):
    """Return the start, the trees and the bytes of all ranks by dml."""
    bins, y = table()
    given = Settings(
        *("squared", 1, rounds, boosting.RATE, boosting.LEAVES),
        bins=boosting.BINS,
        l2=boosting.L2,
        min_rows=boosting.MIN_ROWS,
    )

    def program(comm):
        comm = Metered(comm)
        own, _ = share(comm.rank, size, "rows", ROWS, COLUMNS)
        model = train(comm, Data(bins[own].astype(np.float32), y[own]), given).model
        return model, comm.bytes_sent

    results = sim.run(program, size)
    model = results[0][0]
    assert {each.sha256 for each, _ in results} == {model.sha256}
    return model, sum(sent for _, sent in results)


def splits(tree):
    """Return the splits (leaf, column, bin) of a tree of dml, in their order."""
    made = []
    for i, (column, bin_) in enumerate(zip(tree.column, tree.bin, strict=True)):
        at = tree.left[i]  # the left child of a node keeps the number of its leaf
        while at >= 0:
            at = tree.left[at]
        made.append((int(-1 - at), int(column), int(bin_)))
    return made


@pytest.mark.parametrize("size", SIZES)
def test_trees_and_words_are_those_of_dml(size):
    model, sent = modular(size)
    start = float(model.start[0])
    found = single(size, start=start)
    want = [(splits(tree), tree.value.tolist()) for tree in model.trees]
    assert all(trees == want for trees, _ in found)
    fewer = single(size, ROUNDS - 1, start=start)  # without the words of the bins
    of_a_tree = sum(b for _, b in found) - sum(b for _, b in fewer)
    assert of_a_tree == sent - modular(size, ROUNDS - 1)[1]


@pytest.mark.parametrize("size", SIZES)
def test_the_printed_words_are_the_counted_ones(size, capsys):
    counted = sum(sent for _, sent in ran(boosting.main, size)) / 8
    text = capsys.readouterr().out
    words = int(text.split("words of all ranks in a tree: ")[1].split()[0])
    assert counted == 10 * words
    assert "equal bits to one process: True" in text


@pytest.mark.parametrize(
    "old, new",
    [
        ("(coarse << 32) + 1", "(fine << 32) + 1"),
        ("e = FINE - int(power)", "e = 12 - int(power)"),
        ('parent["sums"] - fewer["sums"]', 'parent["sums"]'),
        ("H_left, H - H_left) < MIN_ROWS", "H_left, H - H_left) < 1"),
        ("first + c, b, 2 * h", "c, b, 2 * h"),
        ("(H - H_left + L2)", "(H - H_left + 2 * L2)"),
        ("total = sum(exchange(comm, parts))", "total = exchange(comm, parts)[0]"),
    ],
)
def test_a_broken_line_changes_the_trees(old, new, tmp_path):
    mutant = broken(tmp_path, boosting, (old, new))
    model, _ = modular(3)
    want = [(splits(tree), tree.value.tolist()) for tree in model.trees]
    try:
        found = single(3, module=mutant, start=float(model.start[0]))
    except (AssertionError, IndexError):
        return
    assert found[0][0] != want
