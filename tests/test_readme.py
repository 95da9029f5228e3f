"""Run the README's commands, with small sizes, and the Python of README and book.

Also the list of all commands, which is written from two tables.
"""

import re
import runpy
import tomllib
from importlib import import_module
from pathlib import Path

import commands
import pytest

from dml import conformance
from dml.data.text.generated import generate
from tests.commands import PYTHON, ROOT, command
from tests.experiments.conftest import undrawn  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick")
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/commands.md").read_text("utf-8")
TOPICS = tomllib.loads((ROOT / "docs/commands.toml").read_text("utf-8"))
COMMANDS = {name: row for rows in TOPICS.values() for name, row in rows.items()}
HERE = ["--corpus=corpus.txt", "--min_count=1"]
SMALL = {
    "allreduce.py": ["--sizes=4KB", "--repeats=1"],
    "server.py": ["--clocks=5"],
    "environments.py": ["--copies=8", "--repeats=1", "--steppers=dml"],
    "rl.py": ["--updates=3", "--widths=8", "--evaluate_every=0"],
    "elastic.py": ["--simulate=3", "--steps=3", "--kills=1", "--mean=1e-4"],
    "server_chain.py": ["--simulate=6", "--spares=1", "--clocks=4", "--kill=middle"],
    "glove.py": [*HERE, "--dim=8", "--epochs=1"],
    "svm.py": ["--data=generated", "--epochs=2"],
    "vision.py": ["--data=digits", "--model=mlp", "--batch=8", "--steps=3"],
    "crossover.py": ["--codes=sign", "--matrices=1", "--repeats=1", "--ranks=2"],
    "kfac.py": ["--ranks=1", "--layers=1", "--width=8", "--steps=1", "--updates=11"],
    "owners.py": ["--ranks=2", "--steps=1", "--blocks=1", "--width=8"]
    + ["--timed_width=8", "--optimizers=adamw", "--repeats=1"],
    "pipeline.py": ["--measured=", "--blocks=6", "--layer_seconds=1" + 7 * ",1"],
    "sweep.py": ["--n=2", "--lr=0.05", "--repeat=1", "--strategy=rotation", "--dim=8"]
    + [*HERE, "--epochs=1", "--timeline=0"],
}
ONLY_HERE = ["elastic", "environments", "kfac", "owners"]  # others have their own tests
REAL = {"allreduce.py", "svm.py"}  # on real ranks; sweep.py starts those of glove.py
SCRIPT = r"(?:experiments|launch)/(\w+\.py)"
LEAVE = {"sweep.py": "runs/sweeps/glove/results.csv"}


def shown():
    """The README's commands that run a script."""
    inline = re.findall(r"`([^`\n]*experiments/\w+\.py[^`\n]*)`", README)
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    found = inline + [line for line in lines if re.search(SCRIPT, line)]
    return list(dict.fromkeys(line.strip() for line in found))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder like the root, for what commands leave behind for one another."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("experiments", "launch"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "corpus.txt").write_text("\n".join(generate(60, 40, seed=1)))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where all commands keep what they count and measure."""
    return tmp_path_factory.mktemp("cache")


def parsed(line):
    """Return whether a command starts ranks, its script, and its flags, made small."""
    before, path, script, rest = re.match(rf"(.*?)({SCRIPT})(.*)", line).groups()
    small = SMALL[script]
    names = {flag.partition("=")[0] for flag in small}
    flags = [word for word in rest.split() if word.partition("=")[0] not in names]
    return not before.startswith("python"), path, script, (*flags, *small)


LINES = [*shown(), *(COMMANDS[name][0] for name in ONLY_HERE)]


@pytest.mark.mpi
@pytest.mark.parametrize(
    "ranks, path, script, flags", dict.fromkeys(map(parsed, LINES))
)
def test_a_command_of_the_readme_runs(
    ranks, path, script, flags, tmp_path, here, cache, monkeypatch
):
    if script not in LEAVE:
        flags = [*flags, f"--out={tmp_path}"]
    monkeypatch.setenv("NPROC", "1")
    monkeypatch.setenv("DML_DATA", str(cache))
    if script in REAL:
        done = command("mpirun", "-n", 2, PYTHON, path, *flags, cwd=here)
        assert done.returncode == 0, done.stderr
    else:
        module = import_module(Path(script).stem)
        if ranks and "simulate" in module.FLAGS:
            flags = [*flags, "--simulate=2"]
        monkeypatch.chdir(here)
        assert module.main([script, *flags]) not in (1, 2)
    assert (here / LEAVE.get(script, tmp_path / "summary.json")).exists()


def test_the_readme_is_short_and_shows_commands():
    assert len(README.splitlines()) <= 150
    assert len(shown()) >= 10


def test_the_list_of_commands_is_complete_and_written_from_its_tables():
    scripts = {path.stem for path in (ROOT / "experiments").glob("*.py")}
    assert scripts == COMMANDS.keys()
    assert len(COMMANDS) == sum(map(len, TOPICS.values()))
    for name, (line, _, time, *_) in COMMANDS.items():
        assert f"experiments/{name}.py" in line
        assert re.fullmatch(r"[\d ]+(s|s CPU|min)", time), name
    assert commands.PAGE.read_text("utf-8") == commands.page()


def test_only_commands_that_draw_no_figure_are_without_one():
    drawing = re.compile(r"\.draw\(|\bchart\(|import draw\b|figures")
    rows = re.findall(r"^\| (none|<a href.*?) \| .*?experiments/(\w+)\.py", PAGE, re.M)
    assert {name for _, name in rows} == COMMANDS.keys()
    for cell, name in rows:
        source = (ROOT / f"experiments/{name}.py").read_text("utf-8")
        assert cell != "none" or not drawing.search(source), name


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *("docs/allreduce.md", "docs/boosting.md", "docs/checkpoints.md"),
        "docs/dimensions.md",
        *("docs/data_parallel.md", "docs/virtual.md"),
    ],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    text = (ROOT / page).read_text("utf-8").partition("## Exercises")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        source = block.replace("1_000_000", "1000").replace("1024", "16")
        if re.search(r"world\(\)|num_cpu_devices", source):  # once in a process
            assert command(PYTHON, "-c", source).returncode == 0
        else:
            (tmp_path / "page.py").write_text(source)
            runpy.run_path(str(tmp_path / "page.py"), run_name="__main__")
    if page == "README.md":  # its all-reduce conforms
        (source,) = blocks
        (tmp_path / "mine.py").write_text(source)
        name = f"{tmp_path / 'mine.py'}:pairwise"
        monkeypatch.setattr(conformance, "VIRTUAL_SIZES", (1, 2, 3))
        assert conformance.main([name, "--ranks=0"]) == 0
