"""Counts are found again where text and flags are the same, and only there."""

import cooccurrence
import numpy as np
import pytest
from studies.glove import counting

from dml.data.text.cooccurrence import RECORD


@pytest.fixture
def counted(monkeypatch):
    """List the folders that something is counted into."""
    folders = []

    def count(comm, pieces, words, folder, rules):
        folders.append(folder)
        return before(comm, pieces, words, folder, rules)

    before = counting.count
    monkeypatch.setattr(counting, "count", count)
    return folders


def test_the_same_text_is_counted_once_for_all_ways_and_ranks(train, corpus, counted):
    train()
    train("--strategy=operation", "--simulate=2", "--memory=1GB", "--dim=4")
    corpus.rename(corpus.with_name("moved.txt"))
    train(f"--corpus={corpus.with_name('moved.txt')}")
    assert len(counted) == 1


@pytest.mark.parametrize(
    "flag",
    ["--window=4", "--min_count=2", "--max_vocab=9", "--symmetric=false"]
    + ["--lower=false", "--pattern=[a-z0-9]+"],
)
def test_other_flags_count_anew(train, counted, flag):
    train()
    train(flag)
    assert len(set(counted)) == 2


def test_other_text_counts_anew(train, corpus, counted):
    train()
    text = corpus.read_text()
    corpus.write_text(text.replace("w1 ", "w2 ", 1))  # as long as before
    train()
    assert len(set(counted)) == 2
    corpus.write_text(text)
    train()
    assert len(counted) == 2


def test_what_was_not_counted_to_the_end_is_counted_anew(train, counted):
    train()
    kept = counted[0].with_suffix("")  # counts are made beside where they are kept
    (kept / "counts.json").unlink()
    train()
    assert len(counted) == 2 and (kept / "counts.json").exists()
    assert list(kept.parent.iterdir()) == [kept]


@pytest.fixture
def counts(corpus, tmp_path):
    """Count by the command, into a folder of its own."""
    out = tmp_path / "counts"
    argv = [f"--corpus={corpus}", f"--out={out}", "--min_count=1", "--window=5"]
    cooccurrence.main(["cooccurrence.py", *argv])
    return out


def test_counts_of_a_folder_are_the_corpus(train, counts, counted, tmp_path):
    given = train(f"--counts={counts}", "--corpus=enwiki", out="given")[0]
    assert counted == []
    assert given["vectors_sha256"] == train()[0]["vectors_sha256"]


def test_shuffled_records_are_the_same_task_in_another_order(train, counts):
    """The C program's shuffle leaves such files; the bits differ, the loss hardly."""
    argv = f"--counts={counts}", "--epochs=8"
    plain = train(*argv)[0]
    path = counts / "cooccurrence.bin"
    records = np.fromfile(path, RECORD)
    np.random.default_rng(0).permutation(records).tofile(path)
    found = [train(*argv, f"--simulate={size}")[0] for size in (1, 4)]
    assert found[0]["vectors_sha256"] == found[1]["vectors_sha256"]
    assert found[0]["vectors_sha256"] != plain["vectors_sha256"]
    assert found[0]["loss"] == pytest.approx(plain["loss"], rel=0.05)


def test_a_cache_that_cannot_be_is_an_error_of_files(train, corpus, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(corpus))
    with pytest.raises(OSError, match="corpus.txt"):  # flags.run makes it one line
        train()
