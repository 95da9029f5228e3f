"""The book: links lead to files, the index is complete, commands are valid."""

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from studies.deep.strategies import STRATEGIES as DEEP
from studies.glove.strategies import STRATEGIES as GLOVE
from studies.shared_memory.sparse_strategies import UPDATES

from dml.sim.networks.named import NETWORKS
from dml.strategies.hybrid.parts import TRANSPOSED
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans.pipeline.schedules import SCHEDULES
from dml.wire.reducers.names import ATTACKS, ROBUST
from dml.wire.server.consistency import CONSISTENCIES
from tests.commands import PYTHON, ROOT
from tests.commands import command as run

DOCS = ROOT / "docs"
# chapters of strategies of deep networks
PARALLEL = ["data_parallel", "byzantine", "model_parallel", "decentralised_training"]
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


class Row(NamedTuple):
    """A row of the index of names."""

    chapter: str
    title: str
    link: str
    names: list[str]
    flags: list[str]
    file: str
    command: str


def index():
    rows, chapter = [], ""
    for line in (DOCS / "names.md").read_text("utf-8").splitlines():
        if line.startswith("| ["):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            title, link = re.fullmatch(r"\[(.*)\]\((.*)\)", cells[0]).groups()
            file = re.fullmatch(r"\[`(.*)`\]\(\.\./\1\)", cells[3])[1]
            names, flags = cells[1].split(", "), re.findall(r"`(.*?)`", cells[2])
            chapter = link.partition(".md#")[0]
            command = cells[4].strip("`").replace("\\|", "|")
            rows.append(Row(chapter, title, link, names, flags, file, command))
    return rows


ROWS = index()


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files_and_headings(page):
    prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize(
    "flag, chapters, names",
    [
        ("allreduce", ["allreduce"], list(ALLREDUCE)),
        ("consistency", ["server"], list(CONSISTENCIES)),
        ("reduce", ["byzantine"], list(ROBUST)),
        ("attack", ["byzantine"], list(ATTACKS)),
        ("pipeline", ["model_parallel"], [*SCHEDULES, TRANSPOSED]),
        ("network", ["virtual"], list(NETWORKS)),
        ("strategy", ["glove"], list(GLOVE)),
        ("strategy", PARALLEL, list(DEEP)),
        ("updates", ["shared_memory"], list(UPDATES)),
    ],
)
def test_the_index_has_every_name_of_a_table(flag, chapters, names):
    flags = {
        value.partition(":")[0]
        for row in ROWS
        if row.chapter in chapters
        for value in row.flags
    }
    assert len(names) > 3
    assert not {f"--{flag}={name}" for name in names} - flags


def commands(chapter):
    """Return the commands of a chapter and of its rows in the index."""
    text = (DOCS / f"{chapter}.md").read_text("utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith("python -c ")]
    rows = [row.command for row in ROWS if row.chapter == chapter and row.command]
    cells = re.findall(r"\| `([^`]*)`(?=<br>| \|)", text)
    return [*lines, *rows, *[cell for cell in cells if "experiments/" in cell]]


@pytest.mark.parametrize(
    "chapter",
    sorted({*(row.chapter for row in ROWS), "commands", "lectures", "failing"}),
)
def test_commands_name_scripts_and_flags_that_exist(chapter):
    known = set()
    for command in commands(chapter):
        words = shlex.split(command)
        path = script(command)
        assert (ROOT / path).is_file(), command
        name = path if path in words else path[: -len("/__main__.py")].replace("/", ".")
        arguments = words[words.index(name) + 1 :]
        flags = flags_of(path, arguments)
        for word in [word for word in arguments if word.startswith("-")]:
            name = re.match(r"--(\w+)", word)[1]
            assert name in flags or name.removeprefix("no") in flags, command
        known |= flags
    values = [value for row in ROWS if row.chapter == chapter for value in row.flags]
    text = (DOCS / f"{chapter}.md").read_text("utf-8")
    for cells in re.findall(r"^\| (.*) \| \[`", text, re.MULTILINE):
        values += re.findall(r"`(--[a-z]\w+)[=`]", cells)
    for value in values:
        assert value[2:].partition("=")[0] in known, value


def test_each_claim_that_fails_and_no_other_has_a_section_with_a_command():
    records = map(Path.read_text, sorted((DOCS / "results").glob("*.json")))
    failing = [
        f"{record['name']}: {finding['claim']}"
        for record in map(json.loads, records)
        for finding in record["findings"]
        if finding["verdict"] == "fails"
    ]
    _, *sections = (DOCS / "failing.md").read_text("utf-8").split("\n## ")
    assert sorted(text.partition("\n")[0] for text in sections) == sorted(failing)
    assert all("```sh\n" in text for text in sections)


def script(command):
    """Return the first Python script or module of a command, else its first file."""
    command = re.sub(
        r"python -m ([\w.]+)",
        lambda module: f"{module[1].replace('.', '/')}/__main__.py",
        command,
    )
    paths = re.findall(
        r"\b(?:experiments|launch|dml)/[\w/]+\.(?:py|sh|sbatch|yaml)\b", command
    )
    return next((path for path in paths if path.endswith(".py")), paths[0])


def flags_of(path, arguments):
    """Return a script's flags; arguments of an experiment are parsed."""
    file = ROOT / path
    if file.parent.name == "experiments":
        values = importlib.import_module(file.stem).FLAGS
        importlib.import_module("lab.flags").parse(values, [path, *arguments])
        return set(values)
    others = [word for word in arguments if word.startswith("experiments/")]
    known = set().union(*(flags_of(other, []) for other in others))
    sources = [file, *file.parent.glob(f"{file.stem}_*.py")]
    return known.union(re.findall(r"\w+", "".join(map(Path.read_text, sources))))


def test_a_single_file_runs_on_virtual_ranks_as_shown():
    text = (DOCS / "lectures.md").read_text("utf-8")
    (program,) = re.findall(r'^python -c "(.*)"$', text, re.MULTILINE)
    ended = run(PYTHON, "-c", program.replace("64", "4"))
    assert ended.returncode == 0, ended.stderr
    assert "equal bits to one process" in ended.stdout
