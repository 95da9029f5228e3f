"""Replicas of a server die in turn on virtual ranks."""

import pytest
import server_chain
from studies.server.deaths import victims

from dml.types import BadInput
from dml.wire.plans.chain import Chain
from tests.experiments.run_folder import read_rows


def run(out, *argv):
    given = [f"--out={out}", "--simulate=8", "--clocks=12", *argv]
    return server_chain.main(["server_chain.py", *given])[0]


def test_deaths_of_head_middle_and_tail_change_no_bit_of_bsp(tmp_path):
    summary = run(tmp_path)
    assert summary["sha256"] == summary["sha256_without_deaths"]
    assert summary["deaths"] == summary["dead_servers"] == 3
    assert summary["lost_updates"] == summary["repeated_updates"] == 0
    rows = read_rows(tmp_path)
    assert [(row["role"], row["rank"]) for row in rows] == [
        ("head", 2),
        ("middle", 4),
        ("tail", 6),
    ]
    waits = [row["recovery_seconds"] for row in rows]
    assert 0 < min(waits) <= max(waits) == summary["recovery_seconds"] < 0.01


def test_no_update_of_async_is_lost(tmp_path):
    argv = ["--replicas=2", "--spares=2", "--kill=tail,head", "--consistency=async"]
    summary = run(tmp_path, *argv)
    assert summary["deaths"] == 2
    assert summary["lost_updates"] == summary["repeated_updates"] == 0


def test_a_role_that_no_replica_has_is_refused():
    assert victims(Chain((3, 4, 5), 2), ["tail", "head"]) == [4, 3]
    with pytest.raises(BadInput, match="expected --kill of head, middle, tail .*"):
        victims(Chain((3, 4), 2), ["middle"])
