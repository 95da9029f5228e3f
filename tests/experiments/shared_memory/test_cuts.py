"""Graphs cut by command: what is left, said and refused."""

import cuts
import numpy as np
import pytest
from studies.shared_memory import sparse_cuts

from dml.data.sparse.dimacs import write
from dml.data.sparse.graphs import generate
from dml.models.sparse.cuts_optimum import flow
from tests.experiments.run_folder import check_folder, read_rows


def run(out, *argv):
    return cuts.main(["cuts", f"--out={out}", *argv])[0]


def test_a_picture_is_cut_beside_its_bound_and_drawn(tmp_path, capsys):
    given = "--data=generated", "--lr=1", "--decay=0.93", "--epochs=90"
    summary = run(tmp_path, *given, "--threads=2")
    assert 0 <= summary["gap"] < 0.03
    assert summary["accuracy"] > 0.95 and summary["cut_accuracy"] > 0.95
    assert 1 <= summary["cut_ratio"] < 1.02
    cut_over_bound = summary["cut"] / summary["cut_bound"]
    assert summary["cut_ratio"] == pytest.approx(cut_over_bound)
    assert "exact_cut" not in summary and summary["workers"] == 2
    check_folder(tmp_path, summary)
    table = np.load(tmp_path / "table.npy")
    # what two workers changed at once still sums to 1
    np.testing.assert_allclose(table.sum(axis=1), 1, atol=1e-4)
    assert (tmp_path / "segments.svg").stat().st_size > 0
    assert read_rows(tmp_path)[-1]["cut"] == summary["cut"]
    out = capsys.readouterr().out
    assert "Ω = 2 rows" in out and "cut bound" in out and "cut ratio 1.0" in out


def test_a_file_is_cut_beside_its_flow(tmp_path, undrawn):
    graph = generate((12, 12), 2, seed=5)
    write(tmp_path / "graph.max", graph)
    summary = run(tmp_path, f"--data={tmp_path / 'graph.max'}", "--batch=16")
    least = flow(graph).cut
    assert summary["exact_cut"] == pytest.approx(least, rel=1e-5)
    assert summary["cut_ratio"] == pytest.approx(summary["cut"] / least, rel=1e-5)
    assert summary["cut_ratio"] < 1.05 and "accuracy" not in summary
    assert not (tmp_path / "segments.svg").exists()


def test_a_file_in_which_nothing_must_be_cut_costs_nothing(tmp_path, undrawn):
    lines = ["p max 6 6", "n 1 s", "n 2 t", "a 1 3 1", "a 3 4 1", "a 4 3 1"]
    lines += ["a 5 6 1", "a 6 5 1", "a 6 2 1"]
    (tmp_path / "graph.max").write_text("\n".join(lines))
    summary = run(tmp_path, f"--data={tmp_path / 'graph.max'}", "--batch=2")
    assert summary["cut"] == summary["exact_cut"] == 0
    assert summary["cut_ratio"] == summary["cut_accuracy"] == 1


def test_what_a_volume_and_others_are_made_of_comes_from_the_flags(monkeypatch):
    taken = []

    def made(sizes, seed):
        taken.append((sizes, seed))
        return generate((4, 4), 2, seed)

    for name in sparse_cuts.GRAPHS:
        monkeypatch.setitem(sparse_cuts.GRAPHS, name, made)
        sizes = sparse_cuts.Sizes(3, 4, 0.5)
        data, start, extras = sparse_cuts.cuts(name, sizes, seed=7).load()
        assert taken.pop() == (sizes, 7) and start.shape == (16, 2)
        assert extras.evaluate(start)["cut"] > 0 and len(data.weights) == 40
