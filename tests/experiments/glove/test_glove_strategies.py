"""The table of all ways: runs under mpirun, and a program that acts as the C one."""

import json
import os
import sys
from pathlib import Path

import glove_strategies
import pytest
from studies.glove import reference as glove_reference
from studies.glove import strategies

from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows, read_summary

SHUFFLE = f"""#!{sys.executable}
import sys
sys.stdout.buffer.write(sys.stdin.buffer.read())
"""
GLOVE = f"""#!{sys.executable}
import json, os, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
words = [line.split()[0] for line in open(given["-vocab-file"])]
open("given.json", "w").write(json.dumps(given))
print("TRAINING MODEL", file=sys.stderr)
for epoch in range(int(given["-iter"])):
    print(f"10:04.31AM, iter: {{epoch + 1:03}}, cost: {{0.5 / (epoch + 1):f}}",
          file=sys.stderr)
with open(given["-save-file"] + ".txt", "w") as file:
    for n, word in enumerate([*words, "<unk>"]):
        numbers = [n + d for d in range(int(given["-vector-size"]))]
        file.write(" ".join([word, *map(str, numbers)]) + "\\n")
"""


@pytest.fixture(autouse=True)
def path(monkeypatch):
    """Find mpirun beside this python; ranks of one thread."""
    found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", found)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def tools(tmp_path):
    """A folder with programs of the names, flags and files of the C ones."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, source in (("shuffle", SHUFFLE), ("glove", GLOVE)):
        (folder / name).write_text(source)
        (folder / name).chmod(0o755)
    return folder


def run(corpus, *argv):
    small = ["--min_count=1", "--window=5", "--dim=8", "--epochs=2"]
    given = [f"--corpus={corpus}", f"--out={corpus.parent / 'out'}", *small, *argv]
    return glove_strategies.main(["glove_strategies.py", *given])


@pytest.mark.mpi
def test_each_cell_is_a_run_and_equal_bits_show(
    corpus, tmp_path, tools, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # paths from here are known everywhere
    argv = "--ways=serial,rotation", "--ranks=2", "--reference=tools", "--seed=3"
    rows = run(corpus, *argv)
    cells = [(row["strategy"], row["ranks"]) for row in rows]
    assert cells == [("serial", 1), ("rotation", 2), (glove_reference.NAME, 2)]
    out = tmp_path / "out"
    assert rows[0]["vectors_sha256"] == rows[1]["vectors_sha256"]
    for row in rows[:2]:
        cell = out / f"{row['strategy']}-{row['ranks']}"
        assert read_summary(cell).items() <= row.items()
    assert rows[2]["loss"] == 0.25
    assert rows[2]["records_per_second"] == 2 * 3183 / rows[2]["seconds"]
    given = json.loads((out / "reference-2" / "given.json").read_text())
    wanted = {"threads": "2", "seed": "4", "vector-size": "8", "eta": "0.05"}
    wanted |= {"x-max": "10.0"}
    assert {name: given[f"-{name}"] for name in wanted} == wanted
    assert not (out / "reference-2" / "shuffled.bin").exists()

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 + len(rows)  # the verdicts of claims follow the table
    assert lines[1].split()[:3] == ["strategy", "ranks", "loss"]
    assert read_rows(out) == rows
    assert read_summary(out)["best_ranks"] in (1, 2)
    check_folder(out, {}, "strategies.svg", "strategies.png")


def test_the_error_of_a_failed_cell_has_the_reason(corpus):
    with pytest.raises(BadInput, match="serial on 1 ranks ended with 2: .*got 61"):
        run(corpus, "--ways=serial", "--ranks=1", "--blocks=61")


@pytest.mark.parametrize(
    "name, source, message",
    [
        ("glove", "exit 1", "expected .*tools/glove to exit with code 0, got 1"),
        ("shuffle", "echo broken >&2; exit 3", "to exit with code 0, got 3: broken"),
        ("glove", "echo cost: nan >&2", "expected `cost: <number>` .*'cost: nan"),
    ],
)
def test_a_c_program_that_fails_is_bad_input(
    corpus, tools, name, source, message, tmp_path
):
    (tools / name).write_text(f"#!/bin/sh\n{source}\n")
    flags = glove_strategies.FLAGS
    given = [f"--corpus={corpus}", "--min_count=1", "--epochs=1"]
    glove_strategies.flags.parse(flags, ["glove_strategies.py", *given])
    with pytest.raises(BadInput, match=message):
        glove_reference.run(tools, tmp_path, 1, flags)


def test_every_way_is_given_the_ranks_that_it_can_have():
    sizes = {way: strategies.sizes(way, [1, 2, 4]) for way in strategies.STRATEGIES}
    assert (sizes.pop("serial"), sizes.pop("server")) == ([1], [2, 4])
    assert set(map(tuple, sizes.values())) == {(1, 2, 4)}
