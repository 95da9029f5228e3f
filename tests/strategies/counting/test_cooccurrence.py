"""Counting on ranks against a brute-force counter, and against itself."""

import os
import re
import struct
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from dml import sim
from dml.data.scratch import Scratch
from dml.strategies.counting import cooccurrence
from dml.strategies.counting.cooccurrence import Counted, Rules, count
from dml.types import BadInput

TINY = Rules(window=3, min_count=1)


def tokens(text):
    return re.findall(r"\w+|\n", text)


def corpus(seed, documents=12, words=9, longest=25):
    """Documents of random words, some empty, some of few different ones."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, documents) * rng.integers(0, 4, documents) // 2
    names = np.array([f"w{k}" for k in range(words)] + ["Ünï", "a", "a1"])
    draws = (rng.zipf(1.4, n) % len(names) for n in lengths)
    return "".join(" ".join(names[draw]) + "\n" for draw in draws)


def cuts(text, seed, pieces=4):
    """Cut a text between words or documents into pieces, some of them empty."""
    spaces = [0, *(match.end() for match in re.finditer(r"[ \n]", text)), len(text)]
    picked = np.random.default_rng(seed).choice(spaces, pieces - 1)
    edges = [0, *sorted(picked.tolist()), len(text)]
    parts = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    return [lambda part=part: part for part in parts]


def files(folder, pieces, rules, size=1):
    """Count on virtual ranks; return both files' bytes, and how much there was."""

    def program(comm):
        return count(comm, pieces, tokens, folder, rules)

    found = sim.run(program, size)
    assert found == found[:1] * size
    assert {path.name for path in folder.iterdir()} == {"vocab.txt", "cooccurrence.bin"}
    names = "vocab.txt", "cooccurrence.bin"
    return *((folder / name).read_bytes() for name in names), found[0]


def brute_force(text, rules):
    """Count every pair as the definition says; return both files' bytes."""
    counts = Counter(text.split())
    kept = sorted((-n, word.encode()) for word, n in counts.items())
    kept = [(word, -n) for n, word in kept if -n >= rules.min_count]
    kept = kept[: rules.max_vocab or None]
    numbers = {word.decode(): k for k, (word, _) in enumerate(kept, 1)}
    units = Counter()
    for document in text.split("\n"):
        known = [numbers[word] for word in document.split() if word in numbers]
        for right, word in enumerate(known):
            for left in range(max(0, right - rules.window), right):
                weight = round(2**32 / (right - left))
                units[known[left], word] += weight
                if rules.symmetric:
                    units[word, known[left]] += weight
    lines = b"".join(b"%s %d\n" % pair for pair in kept)
    records = [struct.pack("<iid", *k, units[k] / 2**32) for k in sorted(units)]
    return lines, b"".join(records)


@lru_cache
def long_text():
    return corpus(7, documents=300, words=40, longest=100)


def short(seed, symmetric):
    window = (1, 2, 3, 5, 15, 20)[seed % 6]
    rules = Rules(window, symmetric, 1 + seed % 4, (0, 6)[seed % 2])
    return corpus(seed), rules, 1 + seed % 3, 4


@pytest.mark.parametrize(
    "text, rules, size, pieces",
    [
        *(short(seed, symmetric) for seed in range(12) for symmetric in (True, False)),
        *((long_text(), TINY, size, 11) for size in range(1, 9)),
        *((long_text(), TINY, 3, pieces) for pieces in (1, 2, 300)),
    ],
)
def test_files_are_those_of_a_brute_force_counter(tmp_path, text, rules, size, pieces):
    for name in ("tokens.part", "cooccurrence.bin.part", "vocab.txt.part"):
        (tmp_path / name).write_bytes(b"x" * 10**6)  # of a run that was ended
    cutting = cuts(text, len(text), pieces)
    lines, records, counted = files(tmp_path, cutting, rules, size)
    assert (lines, records) == brute_force(text, rules)
    assert counted == Counted(
        lines.count(b"\n"), len(records) // 16, len(text.split()), text.count("\n")
    )


def least(folder, size):
    """The least memory, as the refusal of one byte says it."""
    with pytest.raises(BadInput, match="raise --memory") as refused:
        files(folder, cuts(long_text(), 5), TINY._replace(memory=1), size)
    return int(re.search(r"memory >= (\d+) bytes for", str(refused.value))[1])


@pytest.mark.parametrize("size", (1, 2, 5))
def test_runs_spill_where_memory_is_short_and_it_does_not_show(
    tmp_path, size, monkeypatch
):
    want = brute_force(long_text(), TINY)
    written, put = Counter(), Scratch.put

    def noted(self, place, array):
        written[self.path.name] += len(array)
        put(self, place, array)

    monkeypatch.setattr(Scratch, "put", noted)
    spilled = []
    fewest = least(tmp_path, size)
    for memory in (fewest, fewest * 3 // 2, 1 << 30):
        written.clear()
        rules = TINY._replace(memory=memory)
        assert files(tmp_path, cuts(long_text(), 5), rules, size)[:2] == want
        spilled.append(written["runs.part"])
    assert spilled[0] > 0
    assert spilled[-1] == 0
    rules = TINY._replace(memory=fewest - 1)
    with pytest.raises(BadInput, match=f"memory >= {fewest} bytes"):
        files(tmp_path, cuts(long_text(), 5), rules, size)


def resident(name):
    """This process's memory in bytes: VmRSS, or VmHWM, the most since it was reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize("size, megabytes", ((1, 12), (3, 24)))
def test_memory_grows_by_what_it_may(tmp_path, size, megabytes, monkeypatch):
    """Beyond what the program and the words take, where the records take far more."""
    rng = np.random.default_rng(0)
    names = np.array([f"w{k}" for k in range(4000)])
    text = " ".join(names[rng.zipf(1.1, 400_000) % 4000]) + "\n"
    pieces = cuts(text, 0, 50)
    before = []

    def number(*arguments):
        found = corpus_on_ranks(*arguments)
        Path("/proc/self/clear_refs").write_text("5")
        before.append(resident("VmRSS"))
        return found

    corpus_on_ranks = cooccurrence.number
    monkeypatch.setattr(cooccurrence, "number", number)
    rules = Rules(memory=megabytes << 20)

    def program(comm):
        return count(comm, pieces, tokens, tmp_path, rules).records

    records = sim.run(program, size)[0]
    grown = resident("VmHWM") - before[-1]
    assert grown < 1.2 * rules.memory < records * 8


@pytest.mark.parametrize("name", ("tokens.part", "runs.part", "cooccurrence.bin.part"))
def test_a_full_disk_is_named_and_keeps_what_was_there(tmp_path, name, monkeypatch):
    want = files(tmp_path, cuts(corpus(1), 1), TINY)
    memory = least(tmp_path, 2)
    put = Scratch.put

    def full(self, place, array):
        if self.path.name == name and place > 500:
            monkeypatch.setattr(self, "file", os.open("/dev/full", os.O_RDWR))
        put(self, place, array)

    monkeypatch.setattr(Scratch, "put", full)
    told = f"{name}: expected space for at least [0-9]+ bytes.*No space left.*are kept"
    with pytest.raises(BadInput, match=told):
        files(tmp_path, cuts(long_text(), 3), TINY._replace(memory=memory), 2)
    assert (tmp_path / "vocab.txt").read_bytes() == want[0]
    assert (tmp_path / "cooccurrence.bin").read_bytes() == want[1]
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize(
    "text, rules, told",
    [
        ("", TINY, "expected 2 words or more .* got 0 of 0 distinct"),
        ("\n\n\n", TINY, "got 0 of 0 distinct"),
        ("a b c\nc\n", Rules(min_count=2), "at least 2 times, got 1 of 3 distinct"),
        ("a b\n", Rules(window=0), "expected window >= 1, got 0"),
        ("a b\n", Rules(min_count=0), "expected min_count >= 1, got 0"),
        ("a b\n", Rules(max_vocab=-1), "expected max_vocab >= 0, got -1"),
    ],
)
def test_a_corpus_or_rules_that_give_nothing_are_refused(tmp_path, text, rules, told):
    with pytest.raises(BadInput, match=told):
        files(tmp_path, [lambda: text], rules, 2)
    assert not [*tmp_path.iterdir()]


def test_words_with_white_space_and_a_missing_folder_are_refused(tmp_path):
    for words, folder, told in [
        (["a b", "\n"], tmp_path, "without white space, got 'a b'"),
        (["a", "b", "\n"], tmp_path / "no", "No such file .*; pass a writable folder"),
    ]:
        arguments = [lambda: "text"], lambda text, words=words: words, folder, TINY
        with pytest.raises(BadInput, match=told):
            sim.run(lambda comm, given=arguments: count(comm, *given), 1)
