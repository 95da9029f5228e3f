"""Extras: what modules import, what setup.cfg lists, and the errors that name them."""

import ast
import configparser
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from dml import extras

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = metadata.packages_distributions()
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
EXTRAS = SETUP["options.extras_require"]
INSTALLED = ("mpi", "jax", "numeric", "text", "figures", "commands")  # by local.sh
PARTS = ("dml", "experiments", "launch")
ACCELERATORS = {"crc32c"}  # that other packages import: tensorboardX
# Import names of distributions with other names, of extras that may not be installed.
NAMES = {
    "nvidia-ml-py": "pynvml",
    "liblinear-official": "liblinear",
    "jax": None,  # of cuda12: that of jax
}


def distributions(requirements):
    """Return the names in a list of requirements."""
    return {re.split(r"[\[<>=;]", line)[0] for line in requirements.split() if line}


def third_party(folder):
    """Return the packages that files import anywhere, by the paths of the files."""
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    local = {path.stem for path in files} | {path.parent.name for path in files}
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], path.relative_to(ROOT))
    known = sys.stdlib_module_names | local
    return {name: path for name, path in found.items() if name not in known}


def constants(folder):
    """Return the strings in the files of a folder."""
    return {
        node.value
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_imported_package_has_an_extra_and_every_extra_is_imported():
    imported = third_party("dml") | third_party("experiments") | third_party("launch")
    known = {name for names in extras.EXTRAS.values() for name in names}
    tools = {"nbclient", "nbformat", "pytest"}  # of the extra `test`
    others = {*extras.BASE, *tools}
    assert {k: v for k, v in imported.items() if k not in known | others} == {}
    # imported by name, by `require` and `extras.load`
    by_name = constants("dml/environments/adapters") | constants("dml/runs")
    assert (known | {*extras.BASE}) - imported.keys() - by_name == set()


@pytest.mark.parametrize("extra", [*INSTALLED, ""])
def test_setup_cfg_lists_the_distributions_of_the_table(extra):
    listed = EXTRAS[extra] if extra else SETUP["options"]["install_requires"]
    packages = extras.EXTRAS[extra] if extra else extras.BASE
    wanted = {min(DISTRIBUTIONS[name], key=len).lower() for name in packages}
    assert {name.lower() for name in distributions(listed)} - ACCELERATORS == wanted


@pytest.mark.parametrize("extra", ["rl", "peers", "track", "cuda12", "cuda13"])
def test_setup_cfg_lists_the_packages_of_extras_that_are_seldom_installed(extra):
    names = {NAMES.get(n, n.replace("-", "_")) for n in distributions(EXTRAS[extra])}
    assert names - {None} == {*extras.EXTRAS[extra.replace("13", "12")]}


def parts(extra):
    """Return the extras that an extra consists of."""
    (line,) = EXTRAS[extra].split()
    assert line.startswith(f"{SETUP['metadata']['name']}[")
    return {*line[:-1].partition("[")[2].split(",")}


def test_the_extra_all_has_every_extra_but_those_of_gpus_and_developers():
    named = {extra: parts(extra) for extra in ("all", "experiments")}
    assert "experiments" in named["all"]
    once = (named["all"] - {"experiments"}) | named["experiments"]
    assert once == {*extras.EXTRAS} - {"cuda12"}
    assert extras.EXTRAS.keys() | {*named, "cuda13", "test", "docs"} == {*EXTRAS}
    assert SETUP["metadata"]["name"] == extras.DISTRIBUTION


START = "import sys; sys.path.insert(0, 'experiments'); sys.argv = ['x.py']; "
LATE = "from lab import flags; flags.run(lambda argv: __import__('matplotlib'))"
JAX, DRAWING = "jax[jax]", "matplotlib[figures]"


@pytest.mark.parametrize(
    "source, missing, before, code",
    [
        ("import dml; dml.model_problem", JAX, "ModuleNotFoundError: ", 1),
        (
            "from dml.wire.reducers.names import reducer; reducer('order_free', max)",
            "numba[numeric]",
            "ModuleNotFoundError: ",
            1,
        ),
        (START + "import linear", JAX, "x.py: ", 1),
        (START + LATE, DRAWING, "x.py: ", 2),
    ],
)
def test_the_error_of_a_missing_package_names_its_extra(source, missing, before, code):
    package, extra = missing.rstrip("]").split("[")
    block = f"import sys; sys.modules['{package}'] = None\n"
    run = subprocess.run(
        [sys.executable, "-c", block + source],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.stderr.splitlines()[-1] == (
        f"{before}expected the package {package}, got none; pip install "
        f"'dml-methods[{extra}]'"
    )
    assert run.returncode == code
    assert before == "ModuleNotFoundError: " or run.stderr.count("\n") == 1


def test_other_missing_modules_keep_their_error():
    with pytest.raises(ModuleNotFoundError, match="No module named 'dml.nothing'"):
        extras.load("dml.nothing")
