"""`.ci/run` runs smoke suites on other Pythons, then every check on the default one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import PYTHON

ROOT = Path(__file__).parents[2]
NEXT = f"3.{sys.version_info.minor + 1}"
# A program that says it is of the next version, and a shim of pyenv without one.
OTHER = f"""#!/bin/sh
case "$2" in
*"== (3, {NEXT[2:]})"*) exit 0 ;;
*"== (3,"*) exit 1 ;;
esac
{PYTHON.partition(chr(10))[2]}"""
SHIM = "#!/bin/sh\necho pyenv: command not found >&2\nexit 127\n"


@pytest.fixture
def ci(house, tmp_path):
    """Return run(**env) -> the lines of the checks, the messages, the exit code."""
    (house.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", house.root / ".ci/run")
    house.write(house.bin / f"python{NEXT}", OTHER)

    def run(**env):
        given = {"PATH": str(house.bin), "FAKES": str(house.fakes)}
        given |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYENV_ROOT": "/no"}
        done = subprocess.run(
            [house.root / ".ci/run"],
            env=given | env,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        return done.stdout.splitlines(), done.stderr.splitlines(), done.returncode

    return run


def checks(lines):
    return [line.partition("]")[0].replace("'", "").strip("[") for line in lines]


WORKERS = "4"
FULL = ["ruff, format, --check, .", "ruff, check, .", "mypy, dml"]
FULL.append(f"pytest, -n, {WORKERS}")
SMOKE = ["mypy, dml", f"pytest, -n, {WORKERS}, @tests/smoke.txt"]
# Python 3.15 is not among the versions that .ci/run looks for.
needs_a_next = pytest.mark.skipif(sys.version_info >= (3, 14), reason="no next version")


@needs_a_next
def test_a_smoke_suite_runs_on_each_further_python_and_all_checks_come_last(
    ci, house, tmp_path
):
    lines, messages, code = ci()
    assert (checks(lines), code) == (SMOKE + FULL, 0)
    assert f"launch: Python {NEXT}: python{NEXT}" in messages
    assert sum(line.endswith(": not found") for line in messages) == 2
    assert sum("the default" in line for line in messages) == 1
    (kept,) = (tmp_path / "cache/dml-ci").iterdir()
    assert (kept / f".venv-{NEXT}/installed").exists()
    assert not (house.root / f".venv-{NEXT}").exists()
    installs = len(house.installs())
    shutil.rmtree(house.root / ".venv")  # as in a fresh clone
    assert ci()[2] == 0
    assert len(house.installs()) == installs + 1  # of .venv only


@needs_a_next
@pytest.mark.parametrize(
    "failing, code",
    [({"SMOKE": "1"}, 1), ({"PYTEST": "5"}, 5), ({"SMOKE": "1", "MYPY": "3"}, 3)],
)
def test_a_failure_of_a_smoke_suite_fails_and_the_others_run(ci, failing, code):
    lines, messages, found = ci(**failing)
    assert (checks(lines), found) == (SMOKE + FULL, code)
    wrong = f"launch: the smoke suite failed with Python {NEXT}"
    assert (messages[-1] == wrong) == (failing.keys() != {"PYTEST"})


def test_a_shim_without_a_version_is_passed_over(ci, house):
    house.write(house.bin / f"python{NEXT}", SHIM)
    lines, _, code = ci()
    assert (checks(lines), code) == (FULL, 0)


def test_every_entry_of_the_smoke_suite_exists():
    entries = (ROOT / "tests/smoke.txt").read_text().split()
    assert len(entries) >= 10
    assert all((ROOT / entry.partition("::")[0]).exists() for entry in entries)
    assert os.access(ROOT / ".ci/run", os.X_OK)
