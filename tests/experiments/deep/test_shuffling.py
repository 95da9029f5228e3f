"""shuffling.py: counted bytes, shards, verdicts and bad input."""

from math import ceil

import numpy as np
import pytest
import shuffling
from studies.shuffling.formulas import IMAGENET, Sizes, parity, traffic_ratio
from studies.shuffling.training import SHARDS

from dml.data.images.digits import digits
from dml.strategies.exchange import draw_moves
from dml.types import BadInput
from tests.experiments.run_folder import read_rows

pytestmark = pytest.mark.usefixtures("quick")
SMALL = ["--ranks=3", "--seeds=2", "--epochs=2", "--batch=60", "--period=3"]
COUNT, EXAMPLE = 1437, 64 * 4 + 4
MODEL = 4 * (64 * 64 + 64 + 64 * 10 + 10)
UPDATES = 2 * ceil(COUNT / 3 / 60)


def run(tmp_path, *argv):
    summary = shuffling.main(["shuffling.py", f"--out={tmp_path}", *SMALL, *argv])
    rows = read_rows(tmp_path)
    return summary, {(r["strategy"], r["shards"], r["fraction"]): r for r in rows}


def test_rows_have_the_bytes_of_the_drawn_moves_and_of_all_reduces(tmp_path):
    summary, rows = run(tmp_path, "--fractions=0,0.1,1")
    assert len(rows) == 2 * 2 * 3
    scalars = 2 * UPDATES * 4  # the loss of every update
    for (strategy, shards, fraction), row in rows.items():
        moved = sum(
            draw_moves(COUNT, 3, fraction, seed, epoch).examples_sent(rank)
            for seed in range(2)
            for epoch in range(2)
            for rank in range(3)
        )
        assert row["examples_sent"] == moved
        assert row["shuffle_bytes"] == pytest.approx(moved * EXAMPLE / 2 / 2 / 3)
        sums = UPDATES if strategy == "synchronous" else ceil(UPDATES / 3)
        sent = sums * 4 / 3 * MODEL / 2
        assert row["gradient_bytes"] == pytest.approx(sent, abs=scalars)
        assert row["compression"] == pytest.approx(UPDATES / sums, rel=1e-3)
        assert row["ratio"] == pytest.approx(row["formula"], rel=0.2)
        assert summary[f"{strategy}_{shards}_{fraction:g}_ratio"] == row["ratio"]
        assert len(row["accuracies"]) == 2
    assert rows["local", "iid", 0]["ratio"] == 0
    globally = rows["synchronous", "iid", 1], rows["synchronous", "sorted", 1]
    assert globally[0]["shuffle_bytes"] == globally[1]["shuffle_bytes"]
    assert (tmp_path / "accuracy.svg").exists()


def test_sorted_shards_lower_the_accuracy_of_local_sgd_only_without_exchange(tmp_path):
    argv = "--strategy=local", "--fractions=0,1", "--epochs=8", "--period=40"
    _, rows = run(tmp_path, *argv, "--lr=0.2", "--batch=40")
    accuracy = {key[1:]: row["accuracy"] for key, row in rows.items()}
    assert accuracy["sorted", 0] < accuracy["sorted", 1] - 0.05
    assert accuracy["iid", 0] > accuracy["iid", 1] - 0.05


def test_a_compressed_sum_raises_r_and_the_ratio(tmp_path):
    argv = "--strategy=synchronous", "--fractions=1"
    _, exact = run(tmp_path / "exact", *argv)
    _, sign = run(tmp_path / "sign", *argv, "--reduce=sign@scatter+feedback")
    before, after = exact["synchronous", "iid", 1], sign["synchronous", "iid", 1]
    assert before["compression"] == pytest.approx(1, rel=1e-3)
    assert after["compression"] == pytest.approx(32, rel=0.05)
    assert after["shuffle_bytes"] == before["shuffle_bytes"]
    assert after["ratio"] == pytest.approx(32 * before["ratio"], rel=0.05)


@pytest.mark.parametrize("name", SHARDS)
def test_orders_of_shards_are_permutations_and_sorted_ones_are_by_label(name):
    targets = digits()[0].targets
    order = SHARDS[name](targets, 1)
    assert sorted(order) == list(range(COUNT))
    assert not np.array_equal(order, SHARDS[name](targets, 2))
    assert (np.diff(targets[order]) >= 0).all() == (name == "sorted")


def test_the_formula_is_that_of_the_lecture():
    assert traffic_ratio(IMAGENET) == pytest.approx(0.0235, abs=1e-4)
    assert 42 < parity(IMAGENET) < 43
    assert traffic_ratio(IMAGENET, 1, parity(IMAGENET)) == pytest.approx(1)
    # bytes of both, for N = 1000, p = 4
    shuffle, gradients = 0.1 * 250 * 0.75 * 30, 1000 / (4 * 5) * 1.5 * 800 / 7
    assert traffic_ratio(Sizes(30, 5, 800), 0.1, 7) == pytest.approx(
        shuffle / gradients
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--fractions=0,1.5"], "numbers from 0 to 1 in --fractions"),
        (["--strategy=mesh"], "synchronous"),
        (["--ranks=1438"], "--ranks=<at most 1437>"),
        (["--reduce=sign+feedback"], "pass --strategy=synchronous"),
    ],
)
def test_bad_input_is_refused_before_any_training(tmp_path, flags, message):
    with pytest.raises(BadInput, match=message):
        run(tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()
