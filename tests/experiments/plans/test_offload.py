"""offload.py: brute force, tables, claims, and bad input."""

import numpy as np
import offload
import pytest
from lab.claims import HOLDS
from studies.offload import brute_force
from studies.offload.brute_force import copied_bytes, fetches, least_cost, planned_cost

from dml.types import BadInput
from dml.wire.plans.offloading.offload import Access, Iteration
from tests.experiments.run_folder import check_folder, read_rows, read_summary

pytestmark = pytest.mark.usefixtures("quick")
SMALL = ["--blocks=1", "--width=8", "--heads=2", "--length=4", "--vocabulary=11"]
SMALL += ["--virtual_width=0", "--draws=5", "--fractions=1,0.4", "--steps=3"]


def test_belady_has_the_fewest_fetches_of_all_plans():
    for written in (False, True):
        rng = np.random.default_rng(7)
        for _ in range(40):
            iteration, capacity = brute_force.random_iteration(rng, True, written)
            least = least_cost(iteration, capacity, 2, fetches)
            assert planned_cost(iteration, capacity, "belady", 2, fetches) == least


def test_no_plan_beats_the_search_and_the_search_finds_a_known_best():
    rng = np.random.default_rng(8)
    for _ in range(20):
        iteration, capacity = brute_force.random_iteration(rng, False, True)
        least = least_cost(iteration, capacity, 2, copied_bytes)
        for rule in ("belady", "lru", "on_demand"):
            assert planned_cost(iteration, capacity, rule, 2, copied_bytes) >= least
    # the next use of `a` is farther, but `a` was written: its eviction costs two moves
    accesses = [Access("w", ("a",), ("a",))]
    accesses += [Access(name, (name,)) for name in ("b", "c", "b", "a")]
    iteration = Iteration({"a": 1, "b": 1, "c": 1}, accesses)
    assert least_cost(iteration, 2, 1, copied_bytes) == 4
    assert planned_cost(iteration, 2, "belady", 1, copied_bytes) == 5


def test_tables_have_equal_bits_counted_moves_and_claims_that_hold(undrawn, tmp_path):
    summary = offload.main(["offload.py", *SMALL, f"--out={tmp_path}"])
    check_folder(tmp_path, summary, "metrics.jsonl")
    written = read_summary(tmp_path)
    for name in ("repeated", "least_moves", "same_bits", "counted"):
        assert written[f"verdict_{name}"] == HOLDS
    tables = {}
    for row in read_rows(tmp_path):
        tables.setdefault(row["table"], []).append(row)
    assert set(tables) == {"searched", "cyclic", "trained"}
    for row in tables["trained"]:
        assert row["counted_bytes"] == row["predicted_bytes"]
        assert row["peak_bytes"] <= row["capacity"]
    assert max(row["counted_bytes"] for row in tables["trained"]) > 0
    assert len({(row["ranks"], row["sha256"]) for row in tables["trained"]}) == 2
    *_, full = tables["cyclic"]
    assert full["belady"] == 0 and full["capacity"] == full["buffers"]
    for row in tables["cyclic"]:
        if 1 < row["capacity"] < row["buffers"]:
            slots = row["capacity"] - 1  # one is the reserve
            fetched = row["buffers"] * (row["buffers"] - slots) / (row["buffers"] - 1)
            assert row["reserve"] == pytest.approx(fetched)
            assert row["reserve_seconds"] == pytest.approx(row["buffers"])


def test_an_odd_minibatch_is_refused(tmp_path):
    with pytest.raises(BadInput, match="even --batch for two ranks, got 5; pass"):
        offload.main(["offload.py", "--batch=5", f"--out={tmp_path}"])
