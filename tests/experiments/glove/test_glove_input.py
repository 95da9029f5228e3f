"""Bad input to GloVe: one line that says what was expected, what came, what to do."""

import errno
import os

import pytest

from dml.runs import results
from dml.types import BadInput
from tests.commands import PYTHON, command


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--seed=9223372036854775808"], "seed=9223372036854775808"),
        (
            ["--corpus=enwikki"],
            "a file, a folder, FILE.py:NAME or one of enwiki, newsgroups",
        ),
        (["--corpus="], "expected a corpus, got ''"),
        (["--min_count=100000"], "expected 2 words or more .* got 0 of 60"),
        (["--pattern=["], "expected a regular expression"),
        (["--memory=1KB"], "expected memory >= 30720 bytes for 60 words on 1 ranks"),
        (["--memory=much"], "expected a size such as 4KB"),
        (["--strategy=operation", "--simulate=3"], "that 3 ranks can share .* got 8"),
        (["--strategy=hogwild", "--simulate=2"], "real ranks .*hogwild, got --sim"),
        (["--strategy=serial", "--simulate=2"], "expected one rank .* got 2"),
        (["--strategy=mesh", "--columns=3"], "expected a mesh of all 1 devices"),
        (["--strategy=server"], "expected 2 ranks or more, a worker and a server"),
        (["--strategy=server", "--simulate=3", "--servers=3"], "leaves no worker; pas"),
        (["--strategy=server", "--simulate=2", "--consistency=sync"], "consistency=sy"),
        (
            ["--strategy=server", "--simulate=3", "--consistency=backup", "--backup=2"],
            "expected --backup of 0 to 1, fewer than the 2 workers, got 2",
        ),
        (
            ["--strategy=server", "--simulate=3", "--consistency=softsync"]
            + ["--softsync=3"],
            "expected --softsync of 1 to 2, the number of workers, got 3",
        ),
        (["--strategy=server", "--simulate=2", "--lr=1e38"], "expected a finite"),
        (["--blocks=61"], "expected 1 to 60 blocks of words, got 61"),
        (["--blocks=1", "--simulate=2"], "at most 1 ranks for 1 blocks, got 2"),
        (["--counts=nowhere"], "nowhere/vocab.txt: expected lines"),
        (["--lr=nan"], "expected a number in --lr, got nan"),
        (["--lr=1e38"], "expected a finite loss"),
    ],
    ids=" ".join,
)
def test_bad_flags_are_named(train, tmp_path, argv, message):
    with pytest.raises((BadInput, FloatingPointError), match=message):
        train(*argv)
    if (tmp_path / "run" / "config.json").exists():  # found during the training
        assert results.folder_status(tmp_path / "run") == "failed"


@pytest.mark.parametrize(
    "text, message",
    [
        (b" \n\n", "expected text, got none in .*corpus.txt"),
        (b"one one\none", "expected 2 words or more .* got 1 of 1"),
        (b"a b c\x00d", "zero byte at byte 5; pass a text file"),
    ],
)
def test_a_corpus_that_is_no_text_is_named(train, corpus, text, message):
    corpus.write_bytes(text)
    for argv in ([], ["--simulate=3"]):
        with pytest.raises(BadInput, match=message):
            train(*argv)


def test_an_unreadable_file_is_named(train, corpus, tmp_path, monkeypatch):
    def refused(path, *rest, **more):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(
        "studies.glove.counting.open", refused, raising=False
    )  # root may read all
    with pytest.raises(BadInput, match="expected text at .*corpus.txt.*readable file"):
        train()


def test_a_full_disk_is_named_and_earlier_counts_are_kept(train, tmp_path, monkeypatch):
    train()
    before = sorted((tmp_path / "cache").rglob("*.*"))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dml.data.scratch.os.pwrite", full)
    with pytest.raises(BadInput, match="expected space .*No space left .*free disk"):
        train("--window=4")
    train()
    after = [path for path in (tmp_path / "cache").rglob("*.*") if path.is_file()]
    assert sorted(after) == [path for path in before if path.is_file()]


@pytest.mark.mpi
def test_ranks_print_a_refusal_once_and_end_with_2(corpus, tmp_path):
    given = [f"--corpus={corpus}", "--min_count=1", f"--out={tmp_path / 'run'}"]
    given += ["--timeline=0", "--strategy=operation", "--lr=1e30", "--dim=8"]
    done = command("mpirun", "-n", "2", PYTHON, "experiments/glove.py", *given)
    assert done.returncode == 2
    # Open MPI's mpirun adds lines of its own, and a frame about the exit code
    lines = done.stderr.partition("-----")[0].splitlines()
    said = [line for line in lines if line and not line.startswith("[")]
    assert len(said) == 1 and "expected a finite loss" in said[0]
