"""The tutorials run as written: commands succeed and print what is shown."""

import re

import pytest

from tests.commands import ROOT, command

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"```(python|sh|text)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"`(\w+\.py)`")


def lines(text):
    """Return the lines of a text, with every number replaced."""
    return {re.sub(r"\d[\d.,e+-]*", "0", line.strip()) for line in text.splitlines()}


@pytest.mark.mpi
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path):
    for name in ("experiments", "launch"):
        (tmp_path / name).symlink_to(ROOT / name)
    text, output, kinds = page.read_text(), "", set()
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        kinds.add(kind)
        if kind == "python":  # the last file that the text before it names
            (tmp_path / FILE.findall(text[: block.start()])[-1]).write_text(body)
        elif kind == "sh":
            cache = {"DML_DATA": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
            ended = command("bash", "-e", "-c", body, cwd=tmp_path, **cache)
            assert ended.returncode == 0, ended.stderr
            output = ended.stdout
        else:
            assert lines(body) <= lines(output)
    assert {"python", "sh"} <= kinds
