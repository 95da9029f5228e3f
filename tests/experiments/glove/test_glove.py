"""Every way of training by its flags: which agree bit for bit, what a run leaves."""

import hashlib
import json

import numpy as np
import pytest
from gensim.models import KeyedVectors

KEYS = {"loss", "records", "records_per_second", "epoch_seconds"}
KEYS |= {"cooccurrence_seconds", "seconds", "analogy_accuracy", "analogy_semantic"}
KEYS |= {"analogy_syntactic", "wordsim353", "simlex999", "vectors_sha256", "words_sent"}
KEYS |= {"wordsim353_pairs", "simlex999_pairs", "virtual"}


def test_words_sent_are_those_of_all_ranks(train):
    """A ring sends 2(p-1)n: of n products, or of the n numbers of both tables."""
    argv = "--strategy=operation", "--allreduce=ring", "--batch=64", "--simulate=4"
    assert train(*argv)[0]["words_sent"] == 2 * (2 * 3 * 3183)
    argv = "--strategy=synchronous", "--allreduce=ring", "--rows=dense", "--simulate=4"
    table, losses, lengths = 2 * 3 * (120 * 9), 2 * 2 * 3, 12 * 2
    assert train(*argv)[0]["words_sent"] == 2 * (table + losses + lengths)


def test_a_run_leaves_files_that_agree(train, tmp_path, capsys):
    out = tmp_path / "run"
    (summary,) = train("--neighbours=w1,w2,nothing", "--seed=3", drawn=True)
    kept = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    assert kept == [
        *("checkpoints/epoch-1.npz", "checkpoints/epoch-2.npz", "config.json"),
        *("loss.png", "loss.svg", "metrics.jsonl", "parameters.bin"),
        *("squares.bin", "summary.json"),
        *("timeline.html", "timeline.json", "timeline.png", "timeline.svg"),
        *("vectors.bin", "vectors.npy", "vectors.txt", "vocab.txt"),
        *("words.png", "words.svg"),
    ]

    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    text = (out / "summary.json").read_text()
    written = json.loads(text, parse_constant=refuse)
    assert written.items() >= summary.items()
    assert set(summary) >= KEYS
    assert not any(isinstance(value, dict | list) for value in summary.values())
    assert summary["analogy_accuracy"] is None  # none of its words is known
    assert set(summary["near_w1"].split()) < {f"w{n}" for n in range(1, 61)}
    assert "near_nothing" not in summary
    assert "not in the vocabulary: nothing\n" in capsys.readouterr().out

    table = np.load(out / "vectors.npy")
    assert hashlib.sha256(table.tobytes()).hexdigest() == summary["vectors_sha256"]
    lines = [line.split() for line in (out / "vocab.txt").read_text().splitlines()]
    assert [int(count) for _, count in lines] == sorted(
        (int(count) for _, count in lines), reverse=True
    )
    found = KeyedVectors.load_word2vec_format(out / "vectors.bin", binary=True)
    assert found.index_to_key == [word for word, _ in lines]
    assert (found.vectors == table).all()
    with np.load(out / "checkpoints/epoch-2.npz") as state:
        vectors_TxD, biases_T = state["vectors_TxD"], state["biases_T"]
    assert (vectors_TxD[:60] + vectors_TxD[60:] == table).all()
    rows = np.column_stack([vectors_TxD, biases_T]).reshape(2, 60, 9)
    # the C program continues from a word's vector and bias, in float64
    assert (np.fromfile(out / "parameters.bin").reshape(2, 60, 9) == rows).all()
