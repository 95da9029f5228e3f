"""Each file of experiments/single is one algorithm that needs no other file."""

import ast
import re
import sys
from pathlib import Path

import pytest

from docs.excerpts import CORE

SINGLE = Path(__file__).parents[3] / "experiments" / "single"
DOCS = SINGLE.parents[1] / "docs"
FILES = sorted(SINGLE.glob("*.py"))
PACKAGES = {*sys.stdlib_module_names, "numpy", "mpi4py", "jax"}
LINES = 150
RUN = 'if __name__ == "__main__":\n    main(MPI.COMM_WORLD)\n'


def broken_rules(name, text):
    """Return the rules that the text of a single file breaks."""
    tree, broken = ast.parse(text), []
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        broken += [m for m in modules if m.split(".")[0] not in PACKAGES]
    if text.count("\n") > LINES:
        broken.append(f"{text.count(chr(10))} lines")
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    if "main" not in functions or len(functions["main"].args.args) != 1:
        broken.append("main(comm)")
    if not text.endswith(RUN):
        broken.append("the call of main")
    picture = ast.get_docstring(tree, clean=False) or ""
    if not re.search(r"^    .*[─│►▼█░╲╱┌┐└┘|<>]", picture, re.MULTILINE):
        broken.append("a picture")
    command = rf"^    mpirun -n \d+ python experiments/single/{name}$"
    if not re.search(command, picture, re.MULTILINE):
        broken.append("the command")
    return broken


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_single_file_keeps_the_rules(file):
    assert broken_rules(file.name, file.read_text()) == []


GOOD = '''"""Title.

    0 ──► 1

    mpirun -n 4 python experiments/single/good.py
"""
import numpy as np
import jax.numpy
from mpi4py import MPI

def main(comm): ...

'''


@pytest.mark.parametrize(
    "old, new, rules",
    [
        ("", "", []),
        ("import numpy as np", "import dml.sim", ["dml.sim"]),
        ("def main(comm): ...", "def main(comm):\n    import scipy", ["scipy"]),
        (
            "import jax.numpy",
            "from experiments.single import ring",
            ["experiments.single"],
        ),
        ("import jax.numpy", "from . import ring", ["."]),
        ("main(comm): ...", "main(comm, steps): ...", ["main(comm)"]),
        ("def main", "def run", ["main(comm)"]),
        ("    0 ──► 1", "    0 to 1", ["a picture"]),
        ("good.py", "other.py", ["the command"]),
        ("def main", "\n" * LINES + "def main", ["164 lines"]),
    ],
)
def test_the_rules_catch(old, new, rules):
    text = (GOOD + RUN).replace(old, new, 1)
    assert broken_rules("good.py", text) == rules
    assert broken_rules("good.py", GOOD) == ["the call of main"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_chapter_shows_the_core_of_the_file(file):
    chapters = "\n".join(path.read_text() for path in DOCS.glob("*.md"))
    shown = {found["path"] for found in CORE.finditer(chapters)}
    assert f"experiments/single/{file.name}" in shown
    named = rf"\[`experiments/single/{file.name}`\]\S+\s\((\d+)\slines\)"
    lines = len(file.read_text().splitlines())
    assert set(re.findall(named, chapters)) <= {str(lines)}
