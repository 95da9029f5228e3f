"""The book: its pages are the code's, links lead somewhere, every name is there."""

import ast
import importlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dml.sim.networks.named import NETWORKS
from dml.strategies.hybrid.parts import TRANSPOSED
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans.pipelines import SCHEDULES
from dml.wire.server.consistency import CONSISTENCIES

ROOT = Path(__file__).parents[2]
LECTURES = """GloVe on 8 processes, operation parallelism, one server, sharded server,
Downpour, SSP, ESSP, bounded staleness, softsync, HOGWILD!, AIG, round robin, CYCLADES,
parallel SGD, star, tree, butterfly, recursive doubling, Rabenseifner, ring,
hierarchical, Horovod's ring, BytePS, shard_map, pmap, psum, Megatron, GPipe, PipeDream,
ZeRO, FSDP, stragglers, backup workers, linear scaling rule, LARS, Slim Fly,
record and replay"""
LOADS = r"<(?:link|img|script|iframe)[^>]*(?:href|src)=|url\(|@import "
OUTSIDE = re.compile(rf"""(?:{LOADS})["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def book():
    """The generator, as mkdocs has it: its folder is where it looks for modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        yield importlib.import_module("book")


@pytest.fixture(scope="module")
def systems(book):
    return [system for part in book.parts() for system in part.systems]


@pytest.fixture
def small(tmp_path):
    """A book of three pages beside the code, by the same rules, to break."""
    docs = tmp_path / "docs"
    (docs / "systems").mkdir(parents=True)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "dml").symlink_to(ROOT / "dml")
    for name in ("hooks.py", "code_shown.py", "book.css"):
        shutil.copy(ROOT / "docs" / name, docs)
    source = (ROOT / "docs/book.py").read_text("utf-8")
    (docs / "book.py").write_text(re.sub(r"PARTS = \[.*?\]", "PARTS = []", source))
    (docs / "index.md").write_text("[types](../dml/types.py) [a](names.md#a)\n")
    (docs / "names.md").write_text("# A\n")
    for name in ("RESULTS.md", "matrix.md", "glossary.md"):
        (docs / name).write_text("# C\n")
    (docs / "systems/index.md").write_text("# B\n")
    return tmp_path


def build(root, site):
    """Build it; not with -q, which hides warnings from --strict too."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )


def keys(path, table):
    """The names in a table of an experiment, which is not imported for that."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table:
            return list(ast.literal_eval(ast.List(node.value.keys, ast.Load())))
    raise AssertionError(f"{table} is not in {path}")


def test_the_pages_are_those_of_the_code(book):
    made = book.pages()
    for name, text in made.items():
        written = (ROOT / "docs" / name).read_text("utf-8")
        assert written == text, f"docs/{name} is stale: run python docs/book.py"
    there = {f"systems/{path.name}" for path in (ROOT / "docs/systems").iterdir()}
    assert there == {name for name in made if name.startswith("systems/")}


def test_a_changed_docstring_makes_its_page_stale(book, tmp_path):
    part = book.parts()[0]
    star = next(system for system in part.systems if system.page == "star")
    before = book.page(star, part, ROOT)
    beside = ("dml/wire/collectives/segments.py", "dml/wire/plans/schedules.py")
    for path in ("experiments", "docs", *beside):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).symlink_to(ROOT / path)
    changed = (
        (ROOT / "dml/wire/collectives/star.py").read_text().replace("2(p-1)n", "3n")
    )
    (tmp_path / "dml/wire/collectives/star.py").write_text(changed)
    after = book.page(star, part, tmp_path)
    assert after == before.replace("2(p-1)n", "3n") != before


def test_what_cannot_be_shown_is_said(book, tmp_path):
    shown = importlib.import_module("code_shown")
    body = "".join(f"    a = {i}\n" for i in range(60))
    (tmp_path / "a.py").write_text(f"def long():\n{body}")
    with pytest.raises(ValueError, match="expected at most .* lines of a.py:long"):
        shown.function(tmp_path, "a.py:long")
    with pytest.raises(ValueError, match="expected a docstring in a.py:long, got none"):
        shown.documented(tmp_path, "a.py:long")
    with pytest.raises(ValueError, match="expected short in .*a.py, got none"):
        shown.function(tmp_path, "a.py:short")


def test_the_book_builds_strictly_and_asks_nothing_of_the_network(tmp_path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]
    assert len(pages) > 100
    for path in pages:
        assert not OUTSIDE.search(path.read_text("utf-8")), path
    ring = (tmp_path / "systems/ring.html").read_text("utf-8")
    assert 'href="../code/dml/wire/collectives/ring.py.html"' in ring
    source = tmp_path / "code/dml/wire/collectives/ring.py.html"
    assert "def ring_allreduce(" in source.read_text("utf-8")


def test_a_broken_link_or_anchor_or_file_fails_the_build(small, tmp_path):
    assert build(small, tmp_path / "site").returncode == 0
    with (small / "docs/index.md").open("a") as page:
        page.write("[page](nowhere.md) [place](names.md#nowhere)\n")
        page.write("[code](../dml/nowhere.py) ![picture](nowhere.svg)\n")
    done = build(small, tmp_path / "site")
    assert done.returncode != 0
    for broken in ("nowhere.md", "names.md#nowhere", "dml/nowhere.py", "nowhere.svg"):
        assert broken in done.stderr
    assert done.stderr.count("WARNING") == 4


@pytest.mark.parametrize(
    "flag, parts, names",
    [
        ("allreduce", ["allreduce"], list(ALLREDUCE)),
        ("consistency", ["server"], list(CONSISTENCIES)),
        ("pipeline", ["model"], [*SCHEDULES, TRANSPOSED]),
        ("network", ["virtual"], list(NETWORKS)),
        (
            "strategy",
            ["glove"],
            keys("experiments/studies/glove/ways.py", "STRATEGIES"),
        ),
        (
            "strategy",
            ["data", "model"],
            keys("experiments/studies/deep/ways.py", "STRATEGIES"),
        ),
        (
            "updates",
            ["memory"],
            keys("experiments/studies/shared_memory/sparse_ways.py", "UPDATES"),
        ),
    ],
)
def test_every_name_of_a_table_has_a_page(systems, flag, parts, names):
    paged = {value for one in systems if one.part in parts for value in one.values}
    assert len(names) > 3
    assert not {f"--{flag}={name}" for name in names} - paged


def test_the_lectures_systems_are_found_by_name():
    index = (ROOT / "docs/names.md").read_text("utf-8")
    listed = re.findall(r"^\| (.*?) \| \[", index, re.MULTILINE)
    wanted = set(re.split(r",\s+", LECTURES.casefold()))
    assert not wanted - {name.casefold() for name in listed}
    assert listed == sorted(
        listed, key=lambda name: re.sub(r"\W|_", "", name).casefold()
    )


def test_commands_name_scripts_and_flags_that_exist(book):
    for part in book.parts():
        known = set()
        for command in [command for one in part.systems for command in one.run]:
            words = shlex.split(command)
            path = book.script(command)
            assert (ROOT / path).is_file(), command
            given = words[words.index(path) + 1 :]
            here = flags_of(path, given)
            for word in [word for word in given if word.startswith("-")]:
                name = re.match(r"--(\w+)", word)[1]
                assert name in here or name.removeprefix("no") in here, command
            known |= here
        for value in [value for one in part.systems for value in one.values]:
            assert value[2:].partition("=")[0] in known, value


def flags_of(path, given):
    """The flags that a script knows; experiments' are parsed, with their values."""
    script = ROOT / path
    if script.parent.name == "experiments":
        values = importlib.import_module(script.stem).FLAGS
        importlib.import_module("lab.flags").parse(values, [path, *given])
        return set(values)
    others = [word for word in given if word.startswith("experiments/")]
    known = set().union(*(flags_of(other, []) for other in others))
    beside = [script, *script.parent.glob(f"{script.stem}_*.py")]
    return known.union(re.findall(r"\w+", "".join(map(Path.read_text, beside))))


def test_the_readme_leads_to_the_book():
    readme = (ROOT / "README.md").read_text("utf-8")
    for page in ("docs/index.md", "docs/names.md"):
        assert f"]({page})" in readme
    prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [link for link in links if not (ROOT / link).exists()] == []
