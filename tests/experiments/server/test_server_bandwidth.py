"""The bandwidth of servers: on virtual ranks the formula is exact."""

import pytest
import server_bandwidth

from tests.experiments.run_folder import read_rows, read_summary


def run(path, *flags):
    argv = ["server_bandwidth.py", f"--out={path}", "--repeats=1", *flags]
    server_bandwidth.main(argv)
    return read_rows(path)


def test_one_worker_takes_exactly_the_formula_and_no_more_than_bare_messages(tmp_path):
    rows = run(tmp_path, "--simulate=2", "--sizes=1KB,1MB", "--rows=100", "--table=500")
    assert [row["load"] for row in rows] == [
        *("push", "push", "push and pull", "push and pull", "rows")
    ]
    for row in rows[:4]:
        assert row["seconds"] == pytest.approx(row["predicted_seconds"], rel=1e-9)
        assert 0.6 < row["of_raw"] <= 1.0
    summary = read_summary(tmp_path)
    assert summary["p"] == 2
    assert summary["push_1024_1"] == rows[0]["of_raw"]


def test_several_numbers_of_servers_are_a_table(tmp_path):
    rows = run(tmp_path, "--simulate=6", "--sizes=64KB", "--servers=1,2,3")
    found = {(row["servers"], row["workers"]) for row in rows}
    assert found == {(1, 5), (2, 4), (3, 3)}
    pulled = [row for row in rows if row["load"] == "push and pull"]
    rates = [row["seconds"] / row["workers"] for row in pulled]
    assert rates[0] > rates[1] > rates[2]  # each has less at its port
