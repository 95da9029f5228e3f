import numpy as np
import pytest
import server
from sklearn.datasets import dump_svmlight_file
from studies.server import runs as server_runs

from dml.runs import results
from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows
from tests.experiments.server import small_images

SMALL = ["--problem=generated", "--clocks=6", "--batch=240", "--snapshots=2"]


def run(out, *argv):
    """Return the summary of the first living rank, which writes the files."""
    summaries = server.main(["server.py", f"--out={out}", *SMALL, *argv])
    summary = next(filter(None, summaries))
    assert results.read_object(out / "summary.json")["updates"] == summary["updates"]
    return summary


def test_a_run_leaves_a_row_a_gradient_a_flat_summary_and_figures(tmp_path):
    summary = run(tmp_path, "--simulate=5", "--consistency=async", "--lr=20")
    names = ("staleness", "waiting", "objective")
    check_folder(tmp_path, summary, *(f"{name}.svg" for name in names))
    flat = {k: v for k, v in summary.items() if k != "staleness"}
    assert all(isinstance(value, int | float | str) for value in flat.values())
    rows = read_rows(tmp_path)
    assert len(rows) == summary["gradients"] == summary["updates"] == 4 * 6
    assert [row["update"] for row in rows] == list(range(1, 25))
    assert sorted((row["clock"], row["worker"]) for row in rows) == [
        (clock, worker) for clock in range(6) for worker in range(4)
    ]
    stale = np.array([row["staleness"] for row in rows])
    assert summary["staleness"] == np.bincount(stale).tolist()
    assert summary["staleness_mean"] == pytest.approx(stale.mean())


def test_a_replay_has_the_bits_of_what_was_recorded(tmp_path, undrawn):
    argv = ["--simulate=5", "--consistency=async", "--lr=20"]
    slow = "--straggle=shifted_exponential:1,1"
    record = tmp_path / "record"
    one = run(tmp_path / "a", *argv, slow, f"--record={record}")
    again = run(tmp_path / "b", *argv, f"--replay={record}")
    assert one["sha256"] == again["sha256"]
    assert run(tmp_path / "c", *argv)["sha256"] != one["sha256"]


def test_curves_begin_at_the_start_and_end_with_the_last_table(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(server, "draw", lambda path, found: seen.append(found))
    argv = ["--simulate=4", "--straggle=constant:1", "--lr=20", "--network=0,0,0"]
    summary = run(tmp_path, *argv)
    curves = seen[0].curves
    assert curves["clocks"] == [0, 2, 4, 6, 6]
    assert curves["updates"] == [0, 2, 4, 6, 6]
    assert curves["seconds"] == [0, 2, 4, 6, 6]
    assert curves["objective"][0] > curves["objective"][-1] == summary["objective"]
    first = curves["objective"][1]
    assert server_runs.time_to_target(seen[0], "objective", first) == 2
    assert server_runs.time_to_target(seen[0], "objective", 0.0) is None
    assert seen[0].work[:, 0].tolist() == [6, 6, 6]


def write_examples(path):
    random = np.random.default_rng(0)
    inputs = random.random((300, 40)) * (random.random((300, 40)) < 0.1)
    dump_svmlight_file(inputs, inputs[:, 0] > 0, str(path), zero_based=False)


def test_minibatches_that_repeat_send_half_of_the_words_by_cached_keys(
    tmp_path, undrawn
):
    write_examples(tmp_path / "a.svm")
    argv = ["--problem=logistic", f"--svmlight={tmp_path / 'a.svm'}", "--batch=60"]
    argv += ["--simulate=3", "--lr=1", "--clocks=100"]

    def ratio(name, *more):
        cached = run(tmp_path / name, *argv, *more)
        uncached = run(tmp_path / f"{name}_all", *argv, *more, "--key_lists=0")
        return cached["words_sent"] / uncached["words_sent"]

    assert ratio("repeated", "--noreshuffle") < 0.65 < 0.75 < ratio("drawn")


def test_the_kkt_filter_saves_keys_of_an_svmlight_file(tmp_path, undrawn):
    write_examples(tmp_path / "a.svm")
    argv = ["--problem=logistic", f"--svmlight={tmp_path / 'a.svm'}", "--batch=60"]
    argv += ["--simulate=3", "--l1=0.01", "--lr=1"]
    whole = run(tmp_path / "whole", *argv)
    sifted = run(tmp_path / "sifted", *argv, "--kkt_margin=0")
    assert whole["filtered_share"] == 0 < sifted["filtered_share"] < 1
    assert sifted["rows_pushed"] < whole["rows_pushed"]


def test_optax_moves_a_dense_problem_by_a_rule_without_a_kernel(
    tmp_path, undrawn, monkeypatch
):
    small_images.put(monkeypatch)
    argv = ["--problem=digits", "--simulate=3", "--optimizer=rmsprop", "--lr=0.01"]
    free = run(tmp_path, *argv, "--consistency=ssp", "--staleness=1", "--batch=60")
    assert free["objective"] < 2.2
    assert free["updates"] == 2 * 6


def test_a_recorded_run_in_which_workers_died_is_replayed(tmp_path, undrawn):
    same = ("--simulate=6", "--consistency=async", "--elastic", "--clocks=15")
    deaths = "--events=die:0@5.3;die:3@9.8"
    slow = "--straggle=shifted_exponential:1,1"
    record = f"--record={tmp_path / 'run'}"
    first = run(tmp_path / "a", *same, slow, deaths, record)
    assert first["dead_workers"] == 2
    replay = f"--replay={tmp_path / 'run'}"
    for more in ([], ["--network=1e-3,1e-9,0"]):
        again = run(tmp_path / "b", *same, replay, "--overwrite", *more)
        assert again["sha256"] == first["sha256"]
        assert again["dead_workers"] == 2
        assert again["words_sent"] == first["words_sent"]
    with pytest.raises(BadInput, match="expected no deaths of ranks .*with --replay"):
        run(tmp_path / "c", *same, replay, deaths)
    with pytest.raises(BadInput, match="expected servers without replicas"):
        run(tmp_path / "d", *same, record, "--replicas=2")
