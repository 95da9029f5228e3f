"""The tutorials run: commands succeed, and print exactly what is shown.

Commands whose output is not shown have small sizes. Ranks of `VIRTUAL` commands are
virtual ones here: other tutorials, and the script of the same one, start real ranks.
"""

import re
import shlex
from importlib import import_module

import pytest

from tests.commands import COMPILED, ROOT, command
from tests.experiments.conftest import undrawn  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick")
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"```(python|sh|text)\n(.*?)```", re.DOTALL)
SMALL = {  # sizes of commands and files, and those of the test
    r"--steps=\d+": "--steps=8",
    r"--epochs=\d+": "--epochs=2",
    r"-n 4\b": "-n 2",
    r"(stragglers\.py)": r"\1 --steps=100 --measure=0",
    r"(linear\.py)": r"\1 --steps=8",
    r"(topology\.py)": r"\1 --workers=2",
    r"=1000\b": "=32",
    r"\b1024\b": "16",
    r"\b128x8\b": "4x4",
    r"--simulate=256\b": "--simulate=16",
}
COMMAND = re.compile(r"(mpirun -n \d+ )?(?:python experiments/(\w+)\.py)?(.*)")
VIRTUAL = ("train", "linear", "allreduce", "glove")
FILE = re.compile(r"`(\w+\.py)`")


def lines(text):
    return {line.strip() for line in text.splitlines()}


def reduced(text):
    """Return a command with small sizes."""
    for pattern, size in SMALL.items():
        text = re.sub(pattern, size, text)
    return text


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return the folder of compiled programs of all tutorials."""
    return tmp_path_factory.mktemp("cache")


def run(line, folder, cache, capsys):
    """Run a command and return its output: experiments without real ranks in here."""
    ranks, script, flags = COMMAND.fullmatch(line).groups()
    module = script and import_module(script)
    if ranks and script in VIRTUAL:
        flags = f"{flags} --simulate=2"
    devices = "=mesh" in flags or script == "matrix"  # set once in a process
    if script and (not ranks or script in VIRTUAL) and not devices:
        capsys.readouterr()
        assert module.main([script, *shlex.split(flags)]) not in (1, 2)
        return capsys.readouterr().out
    options = {"DML_DATA": str(cache), "PYTHONPATH": str(ROOT)}
    if not ranks:
        options |= COMPILED
    ended = command("bash", "-e", "-c", line, cwd=folder, **options)
    finds_faults = "dml.parity" in line
    assert ended.returncode == finds_faults, ended.stderr
    return ended.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path, cache, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DML_DATA", str(cache))
    for name in ("experiments", "launch"):
        (tmp_path / name).symlink_to(ROOT / name)
    text, output = page.read_text(), ""
    blocks = list(BLOCK.finditer(text))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        kind, body = block.groups()
        if kind == "python":  # the last file that the text before it names
            file = FILE.findall(text[: block.start()])[-1]
            (tmp_path / file).write_text(body)
        elif kind == "sh":
            if after is None or after[1] != "text":  # its output is not shown
                body = reduced(body)
            commands = body.replace("\\\n", "").strip().splitlines()
            output = "".join(run(line, tmp_path, cache, capsys) for line in commands)
        else:
            assert lines(body) <= lines(output)  # numbers included
    assert {"python", "sh"} <= {block[1] for block in blocks}
