"""The source distribution and the wheel: what they have, and that they run alone."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

import dml
from dml import extras
from dml.sim import __main__ as virtual

pytest.importorskip("setuptools", minversion="70.1", reason="the extra `test` has it")
ROOT = Path(__file__).parents[1]
COPIED = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "dml")
BUILD = "from setuptools import build_meta; print(build_meta.build_{}('dist'))"
NAME = extras.DISTRIBUTION.replace("-", "_")


def build(folder, kind):
    """Build in a folder; return the path of the distribution."""
    command = [sys.executable, "-c", BUILD.format(kind)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the source distribution of a copy, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("packaging")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    for cache in [*folder.rglob("__pycache__")]:
        shutil.rmtree(cache)
    source = build(folder, "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    return source, build(unpacked, "wheel")


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Return a folder with the wheel and what it requires, linked from this Python."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[1]) as wheel:
        wheel.extractall(folder)
    for name in extras.BASE:
        place = Path(importlib.util.find_spec(name).origin).parent
        for path in (place, place.with_name(f"{name}.libs")):
            if path.exists():
                (folder / path.name).symlink_to(path)
    return folder


def run_alone(folder, *command):
    """Run Python without site-packages, in an empty folder."""
    (folder / "empty").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-S", *command],
        cwd=folder / "empty",
        env={"PYTHONPATH": str(folder), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=1200,
    )


def test_the_wheel_has_every_file_of_dml_and_its_description(built):
    source, wheel = built
    assert source.name == f"{NAME}-{dml.__version__}.tar.gz"
    assert wheel.name == f"{NAME}-{dml.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
        (place,) = (name for name in names if name.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(place))
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("dml/**/*")
             if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    assert {name for name in names if ".dist-info/" not in name} == files
    assert any(name.endswith("LICENSE") for name in names)
    assert metadata["Name"] == extras.DISTRIBUTION
    text = metadata.get_payload(decode=True).decode()
    assert text.strip() == (ROOT / "README.md").read_text().strip()
    assert extras.EXTRAS.keys() <= {*metadata.get_all("Provides-Extra")}
    base = [one for one in metadata.get_all("Requires-Dist") if "extra" not in one]
    assert {*base} == {*extras.BASE}


REDUCE = """
import sys
import numpy as np
import dml
def program(comm):
    buffer = np.full(1000, comm.rank, np.float32)
    dml.ALLREDUCE["ring"](comm, buffer)
    return buffer[-1], comm.Wtime()
(sums, seconds) = zip(*dml.sim.run(program, 16))
assert {*sums} == {120} and min(seconds) > 0
packages = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(*sorted(packages - {"__main__", "__mp_main__"}))
"""


def test_the_wheel_alone_reduces_on_virtual_ranks_with_the_base_only(installed):
    run = run_alone(installed, "-c", REDUCE)
    assert (run.stdout, run.stderr) == ("dml greenlet numpy\n", "")


def test_the_wheel_alone_runs_scripts_on_networks_without_numba(installed, capfd):
    script = str(ROOT / "docs" / "examples" / "heat.py"), "16", "3"
    for network in "uniform", "torus:2x4", "slim_fly":
        arguments = "-n", "8", f"--network={network}", *script
        assert virtual.main(arguments) == 0
        with_numba = capfd.readouterr()
        alone = run_alone(installed, "-m", "dml.sim", *arguments)
        assert (alone.stdout, alone.stderr) == with_numba
        assert alone.stderr.startswith("8 virtual ranks: ")
    alone = run_alone(installed, "-m", "dml.sim", "--timeline=a.svg", *arguments)
    assert alone.returncode == 2
    assert alone.stderr.startswith("expected the package matplotlib, got none; pip")


def test_the_wheel_alone_has_the_conformance_suite(installed):
    program = "from dml import conformance; conformance.VIRTUAL_SIZES = 1, 2, 3; "
    program += "conformance.SEGMENTED_SIZES = (2,); "
    program += "conformance.main(['tree', '--ranks=0'])"
    run = run_alone(installed, "-c", program)
    assert run.stdout.endswith("tree: conforms\n"), run.stderr


def test_the_wheel_alone_names_the_extra_of_what_it_lacks(installed):
    for name, extra in (("world", "mpi"), ("model_problem", "jax")):
        run = run_alone(installed, "-c", f"import dml; dml.{name}")
        assert run.stderr.endswith(f"pip install 'dml-methods[{extra}]'\n")


def test_the_citation_has_the_version_and_the_entry_of_bibtex_its_title():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors"} <= citation.keys()
    assert str(citation["version"]) == dml.__version__
    text = (ROOT / "docs/index.md").read_text()
    entry = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,?$", text, re.MULTILINE))
    assert entry["title"] == citation["title"]
    assert entry["version"] == dml.__version__
    assert entry["author"] == citation["authors"][0]["name"]
