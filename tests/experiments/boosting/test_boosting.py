"""The command boosting.py: one hash, and the files of its run folder."""

import boosting
import numpy as np
import pytest
from studies.boosting import peers
from studies.boosting.report import area, score

from dml.boosting import from_json
from dml.data.tables.named import divided, table
from dml.types import BadInput
from tests.experiments.run_folder import read_rows, read_summary

SMALL = ["--rows=500", "--rounds=3", "--leaves=5"]


def run(out, *argv):
    return boosting.main(["boosting.py", f"--out={out}", *SMALL, *argv])


def test_every_split_prints_one_hash(tmp_path, capsys):
    splits = ([], ["--simulate=3", "--split=columns"], ["--simulate=4", "--split=2x2"])
    hashes = set()
    for i, argv in enumerate(splits):
        summaries = run(tmp_path / str(i), *argv)
        hashes |= {summary["sha256"] for summary in summaries}
        words = {summary["words_sent"] for summary in summaries}
        assert len(words) == 1 and (words.pop() > 0) == (i > 0)
        assert [*hashes][0][:16] in capsys.readouterr().out
    assert len(hashes) == 1


def test_a_vote_has_one_hash_and_fewer_words(tmp_path):
    vote = ["--split=vote", "--shards=8", "--top=2"]
    (alone,) = run(tmp_path / "1", *vote)
    (rank, *_) = run(tmp_path / "4", *vote, "--simulate=4")
    (rows, *_) = run(tmp_path / "r", "--simulate=4")
    assert rank["sha256"] == alone["sha256"] != rows["sha256"]
    assert rank["words_sent"] < rows["words_sent"]


def test_the_run_folder_has_the_model_and_a_figure(tmp_path):
    (summary,) = run(tmp_path, "--data=iris", "--stop_after=2")
    files = {path.name for path in tmp_path.iterdir()}
    assert {"boosting.svg", "model.json", "model.txt", "summary.json"} <= files
    model = from_json((tmp_path / "model.json").read_text())
    assert model.sha256 == summary["sha256"] == read_summary(tmp_path)["sha256"]
    rows = read_rows(tmp_path)
    assert len(rows) <= 3 and rows[-1]["held_out_loss"] < 1.1
    _, held_out = divided(table("iris", 500, 0))
    share = np.mean(model.predictions(held_out.x).argmax(axis=1) == held_out.y)
    assert summary["accuracy"] == share > 0.8


def test_peers_train_on_all_rows_in_turns(tmp_path, monkeypatch, capsys):
    grown = []

    def installed(training, given, threads):
        assert (len(training.y), given.min_rows, threads) == (400, 0, 1)
        share = training.y.mean()
        return {
            "constant": peers.Peer(lambda: grown.append(1), lambda x: x[:, 0] * share)
        }

    monkeypatch.setattr(peers, "installed", installed)
    run(tmp_path, "--peers", "--rounds=15")
    assert len(grown) == 15
    ours, other = read_rows(tmp_path)
    assert (ours["peer"], ours["ratio"], other["peer"]) == ("dml", 1.0, "constant")
    _, held_out = divided(table("higgs", 500, 0))
    assert other["score"] == score(held_out.x[:, 0], held_out) < ours["score"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "Times as long on as many threads: constant 0.0" in printed
    with pytest.raises(BadInput, match="expected real ranks and a multiple of 5"):
        run(tmp_path / "other", "--peers", "--simulate=2", "--rounds=15")


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(BadInput, match="expected a table of .*, got 'mnist'"):
        run(tmp_path, "--data=mnist")
    with pytest.raises(BadInput, match="expected 4 ranks for the split 2x2, got 1"):
        run(tmp_path, "--split=2x2")
    assert not list(tmp_path.iterdir())


def test_the_area_counts_pairs_in_order():
    values, labels = np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 1, 0, 1])
    assert area(values, labels) == 3.5 / 4
    assert area(-values, labels) == 0.5 / 4
    assert np.isnan(area(values, np.ones(4)))
