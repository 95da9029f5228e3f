"""The files and the kills of an elastic run."""

from types import SimpleNamespace

import pytest
from studies.deep.following import write_recoveries
from studies.elastic.real import Plan

from dml.runs import results
from dml.wire.recovery.members import Recovery


def test_every_recovery_since_the_last_update_is_written(tmp_path):
    comm = SimpleNamespace(Wtime=lambda: 5.0, platform=SimpleNamespace(virtual=True))
    recoveries = [Recovery(time, 0.5, 3, 1) for time in (0.0, 1.0, 2.0)]
    members = SimpleNamespace(recoveries=recoveries, comm=comm)
    write_recoveries(tmp_path / "recoveries.jsonl", members, 1, 7)
    rows = results.read_rows(tmp_path / "recoveries.jsonl")
    assert [row["noticed"] for row in rows] == [1.0, 2.0]
    assert [row["formed"] for row in rows] == [1.5, 2.5]
    assert {(row["step"], row["committed"]) for row in rows} == {(7, 5.0)}


@pytest.mark.parametrize(
    ("ranks", "spares", "kills", "most"), [(9, 1, 5, 5), (9, 1, 99, 8), (4, 0, 99, 3)]
)
def test_workers_are_killed_until_one_rank_is_left(ranks, spares, kills, most):
    assert Plan(ranks, spares, kills, 1.0, 0).most_kills == most
