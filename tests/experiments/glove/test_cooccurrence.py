"""Counting by its command: the C program's files, alike on any number of ranks."""

import re
import struct
from collections import Counter

import cooccurrence
import pytest

from tests.experiments.run_folder import read_summary


def run(corpus, out, *argv):
    given = [f"--corpus={corpus}", f"--out={out}", "--min_count=20", "--window=4"]
    return cooccurrence.main(["cooccurrence.py", *given, *argv])


def brute_force(text):
    """Count every pair of a window of 4 as the definition says; return both files."""
    counts = Counter(re.findall(r"\w+", text))
    order = sorted((-n, word) for word, n in counts.items() if n >= 20)
    numbers = {word: k for k, (_, word) in enumerate(order, 1)}
    values = Counter()
    for document in text.split("\n"):
        known = [numbers[word] for word in document.split() if word in numbers]
        for right, word in enumerate(known):
            for left in range(max(0, right - 4), right):
                weight = round(2**32 / (right - left)) / 2**32
                values[known[left], word] += weight
                values[word, known[left]] += weight
    vocabulary = "".join(f"{word} {-n}\n" for n, word in order)
    records = [struct.pack("<iid", *pair, values[pair]) for pair in sorted(values)]
    return vocabulary.encode(), b"".join(records)


@pytest.mark.parametrize("size", (0, 1, 2, 4))
def test_files_are_brute_force_s_on_any_ranks(corpus, tmp_path, size):
    summaries = run(corpus, tmp_path / "out", f"--simulate={size}")
    files = [tmp_path / "out" / name for name in ("vocab.txt", "cooccurrence.bin")]
    found = tuple(file.read_bytes() for file in files)
    assert found == brute_force(corpus.read_text())
    assert len(summaries) == max(size, 1)
    summary = read_summary(tmp_path / "out")
    assert summary.items() >= summaries[0].items()
    assert summary["words"] == found[0].count(b"\n") < 60
    assert summary["records"] == len(found[1]) // 16
    assert (summary["words_sent"] > 0) == (size > 1)
    assert len({each["words_sent"] for each in summaries}) == 1  # of all ranks
    assert "cooccurrence_seconds" in summary


def test_a_second_run_finds_the_counts_and_copies_them(corpus, tmp_path, monkeypatch):
    run(corpus, tmp_path / "one", "--simulate=2")
    monkeypatch.setattr("studies.glove.counting.count", None)
    run(corpus, tmp_path / "two")
    for name in ("vocab.txt", "cooccurrence.bin"):
        one, two = (tmp_path / out / name for out in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
