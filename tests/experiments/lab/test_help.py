"""The help of every command, without importing a package that takes long."""

import importlib
import os
import re

import pytest
from lab import help as command_help
from lab.stand_ins import PACKAGES

from tests.commands import PYTHON, ROOT, command, output

COMMANDS = sorted(path.stem for path in (ROOT / "experiments").glob("*.py"))
FLAG = re.compile(r"^  --(?:\[no\])?(\w+)", re.MULTILINE)


# Runs each script in a fork of a process that has imported what all scripts do.
FORKS = """
import gc, os, runpy, sys
import absl.flags, dml.figures.timeline, dml.runs.exports, dml.runs.tracking, dml.sim
gc.disable()
folder, *scripts = sys.argv[1:]
for script in scripts:
    name = os.path.join(folder, os.path.basename(script))
    if not os.fork():
        for file in 1, 2:
            os.dup2(os.open(f"{name}.{file}", os.O_WRONLY | os.O_CREAT), file)
        sys.argv = [script, "--help=all"]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    with open(f"{name}.code", "w") as file:
        print(os.waitstatus_to_exitcode(os.wait()[1]), file=file)
"""


@pytest.fixture(scope="module")
def helps(tmp_path_factory):
    """Return the folder of what commands print, without packages that take long."""
    broken, folder = map(tmp_path_factory.mktemp, ("broken", "helps"))
    for package in PACKAGES:
        (broken / f"{package}.py").write_text("raise AssertionError(__name__)")
    scripts = [ROOT / f"experiments/{name}.py" for name in COMMANDS]
    paths = f"{broken}{os.pathsep}{ROOT}"
    command(PYTHON, "-c", FORKS, folder, *scripts, PYTHONPATH=paths)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_all_flags_without_slow_packages(name, helps):
    files = (helps / f"{name}.py.{end}" for end in ("1", "2", "code"))
    text, err, code = (file.read_text() for file in files)
    assert (err, code) == ("", "0\n")
    module = importlib.import_module(name)
    assert text.startswith(module.__doc__.rstrip())
    listed = FLAG.findall(text)
    assert sorted(listed) == sorted({*module.FLAGS, *command_help.FILES} - {"h"})


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_fits_two_screens_and_names_every_flag(name, capsys, monkeypatch):
    module = importlib.import_module(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    lines = [*command_help.first_lines(module.__doc__, module.FLAGS)]
    text = "\n".join(lines)
    described, _, names = text.partition("\nFurther flags")
    assert len(text.splitlines()) <= 72
    assert max(map(len, text.splitlines())) <= 90  # that of an example
    found = {*FLAG.findall(described), *re.findall(r"\w+", names.partition(":")[2])}
    assert found == set(module.FLAGS) - {"help", "h"}
    assert not set(FLAG.findall(described)) & {"grid", "gpu_price", "watts"}


def test_the_most_used_flags_stand_first_and_no_choice_is_broken():
    text = output(PYTHON, ROOT / "experiments/gpt.py", "-h")
    listed = FLAG.findall(text)
    assert listed[:3] == ["strategy", "model", "corpus"]
    assert "attack" not in listed
    assert "halving_doubling" in text


@pytest.mark.mpi
def test_help_is_printed_once_by_several_ranks():
    text = output("mpirun", "-n", "2", PYTHON, "experiments/linear.py", "--help")
    assert text.count("usage:") == 1


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--out", "--help"], "expected a value of a flag before --help"),
        (["--nosuch", "--help"], "Unknown command line flag 'nosuch'"),
        (["--help=some"], "flag --help=some"),
    ],
)
def test_a_bad_flag_beside_help_is_one_line(flags, message):
    done = command(PYTHON, "experiments/linear.py", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"linear.py: {message}")
    assert done.stderr.count("\n") == 1
