"""The command boosting_splits.py: words and seconds are those of the formulas."""

import boosting_splits
import numpy as np
import pytest
from studies.boosting import accuracy
from studies.boosting.splits import (
    Core,
    computation,
    counted_rows,
    grown,
    predicted_rows,
    routed,
    square,
    task_of,
)

from dml.boosting import Settings
from dml.data.tables.generated import zipf
from dml.types import BadInput
from dml.wire.costs.allreduce import Rates
from tests.experiments.run_folder import check_folder, read_rows

CORE, RATES = Core(8e-9, 5e-9, 15e-9, 44e-9), Rates(1e-6, 1e-9, 1e-10)
TINY = ["--rows=600", "--columns=2000", "--nonzeros=10", "--leaves=4", "--p=1,4"]
TINY += ["--grids=2x1,1x2", "--score_rows=300", "--score_columns=64"]
TINY += ["--score_rounds=10"]


def task(rows=2000, core=CORE):
    given = Settings(loss="logistic", rounds=2, leaves=8)
    return task_of(*zipf(rows, 5000, 30, 0), given, core, RATES)


def test_virtual_ranks_send_the_words_and_take_the_seconds_of_the_formulas():
    grids = [(2, 1), (8, 1), (1, 4), (2, 2), (4, 4)]
    hashes = set()
    for row in counted_rows(task(), grids):
        assert row["words"] == row["formula"] > 0
        assert row["seconds"] == pytest.approx(row["predicted"], rel=0.02)
        hashes.add(row["sha256"])
    assert len(hashes) == 1


def test_columns_save_words_and_time_on_more_ranks():
    one, four, many = predicted_rows(task(), [1, 4, 16])
    assert one["words_rows"] == one["words_columns"] == 0
    assert four["fewer"] > many["fewer"] > 100
    assert four["seconds_columns"] < four["seconds_grid"] < four["seconds_rows"]
    assert [four["shape"], many["shape"]] == ["2x2", "4x4"]
    assert square(8) == (2, 4)


def test_sums_of_nodes_are_those_of_the_tree():
    given = task()
    made = grown(given, (1, 1)).model
    tree = made.trees[-1]
    found = routed(given, tree, made.leaves(given.x)[:, -1], 3)
    sums = np.concatenate([tree.node_sums, tree.leaf_sums])
    assert found.rows_RxM.sum(axis=0).tolist() == sums[:, 2].tolist()
    assert found.values_M[0] == given.x.nnz
    nodes = len(tree.column)
    assert found.values_M[nodes:].sum() == given.x.nnz


def test_blocks_of_columns_have_equal_computation():
    given = task(core=Core(0.0, 5e-9, 15e-9, 44e-9))
    found = routed(given, *last(given), 1)
    whole = computation(given, found, (1, 1))
    assert computation(given, found, (1, 4)) < 1.2 * whole / 4
    # blocks of rows search parts of the columns
    search = task(core=Core(0.0, 0.0, 0.0, 44e-9))
    whole = computation(search, found, (1, 1))
    assert whole / 4 < computation(search, found, (4, 1)) < whole / 2
    cuts = given.cuts(4)
    assert cuts[0] == 0 and cuts[-1] == 5000 and cuts[1] < 1250


def test_ranks_of_a_vote_train_on_the_rows_that_are_not_held_out():
    x, y = zipf(600, 64, 5, 0)
    given = Settings(loss="logistic", split="vote", shards=accuracy.SHARDS)
    found = [accuracy.block(x, y, 120, given, r) for r in range(accuracy.RANKS)]
    assert np.concatenate([each.y for each in found]).tolist() == y[120:].tolist()
    assert sum(each.x.nnz for each in found) == x[120:].nnz


def last(given):
    model = grown(given, (1, 1)).model
    return model.trees[-1], model.leaves(given.x)[:, -1]


def test_the_command_has_all_tables(tmp_path, capsys):
    summary = boosting_splits.main(["boosting_splits.py", f"--out={tmp_path}", *TINY])
    check_folder(tmp_path, summary, "boosting_splits.svg")
    tables = {row["table"] for row in read_rows(tmp_path)}
    assert tables == {"splits", "counted", "bins", "votes"}
    assert summary["models"] == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 grids have 1 model, and send the words of the formula within 0" in printed


@pytest.mark.parametrize("grids", ("3", "axb", "0x2"))
def test_other_grids_are_refused(grids, tmp_path):
    with pytest.raises(BadInput, match="expected"):
        boosting_splits.main(["b.py", f"--out={tmp_path}", *TINY, f"--grids={grids}"])
