"""--help of every command lists its flags, and imports no package that takes long."""

import importlib
import os
import re

import pytest
from lab.stand_ins import PACKAGES

from tests.commands import PYTHON, ROOT, command, output

COMMANDS = sorted(path.stem for path in (ROOT / "experiments").glob("*.py"))


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return a folder of packages that cannot be imported."""
    folder = tmp_path_factory.mktemp("broken")
    for package in PACKAGES:
        (folder / f"{package}.py").write_text("raise AssertionError(__name__)")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_all_flags_without_slow_packages(name, broken):
    script, paths = ROOT / f"experiments/{name}.py", f"{broken}{os.pathsep}{ROOT}"
    text = output(PYTHON, script, "--help", PYTHONPATH=paths)
    module = importlib.import_module(name)
    assert text.startswith(module.__doc__.rstrip())
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+):", text, re.MULTILINE))
    assert listed == set(module.FLAGS) | {"flagfile", "undefok"}


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--out", "--help"], "expected a value of a flag before --help"),
        (["--nosuch", "--help"], "Unknown command line flag 'nosuch'"),
    ],
)
def test_a_bad_flag_beside_help_is_one_line(flags, message):
    done = command(PYTHON, "experiments/linear.py", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"linear.py: {message}")
    assert done.stderr.count("\n") == 1
