"""The tutorials run, with small sizes: commands succeed and print what is shown."""

import re

import pytest

from tests.commands import ROOT, command

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"```(python|sh|text)\n(.*?)```", re.DOTALL)
SMALL = {  # sizes of commands and files, and those of the test
    r"--steps=\d+": "--steps=8",
    r"-n 4\b": "-n 2",
    r"\b1000\b": "32",
    r"\b1024\b": "64",
    r"\b128x8\b": "8x8",
    r"\b25_600_000\b": "100_000",
    r"--simulate=256\b": "--simulate=16",
}
FILE = re.compile(r"`(\w+\.py)`")


def lines(text):
    """Return the lines of a text, with every number replaced."""
    return {re.sub(r"\d[\d.,e+-]*", "0", line.strip()) for line in text.splitlines()}


def reduced(text):
    """Return a command or file with small sizes."""
    for pattern, size in SMALL.items():
        text = re.sub(pattern, size, text)
    return text


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return the folder of compiled programs of all tutorials."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.mpi
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path, cache):
    for name in ("experiments", "launch"):
        (tmp_path / name).symlink_to(ROOT / name)
    text, output, kinds = page.read_text(), "", set()
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        kinds.add(kind)
        if kind == "python":  # the last file that the text before it names
            file = FILE.findall(text[: block.start()])[-1]
            (tmp_path / file).write_text(reduced(body))
        elif kind == "sh":
            paths = {"DML_DATA": str(cache), "PYTHONPATH": str(ROOT)}
            shell = "bash", "-e", "-c", reduced(body)
            ended = command(*shell, cwd=tmp_path, **paths)
            assert ended.returncode == 0, ended.stderr
            output = ended.stdout
        else:
            assert lines(body) <= lines(output)
    assert {"python", "sh"} <= kinds
