"""The import rule: numbers flow down the path of the data, and so do imports."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MPI, SINGLE = "dml/wire/comm/mpi_library.py", "experiments/single/"
RESULTS = {"metrics", "runs", "evaluation", "figures"}
STAGES = {"data", "environments", "models", "wire", "update", "sim", *RESULTS}
BASE = {"types", "extend", "extras", "compiled", "files", "wire.plans", "wire.costs"}
MAY_IMPORT = {stage: BASE | {stage} for stage in STAGES} | {
    "__init__": set(),  # see `broken_rules`
    "extend": {"types"},
    "extras": set(),
    "exercises": set(),
    "processes": {"types"},
    "compiled": set(),
    "files": {"types"},
    "conformance": {"conformance", "types", "extend", "processes", "wire", "sim"},
    "types": {"types"},
    **{stage: {"types", "extend", "extras", "files", *RESULTS} for stage in RESULTS},
    "models": {"types", "models", "wire.mesh", "wire.plans", "wire.costs"}
    | {"environments"},
    "strategies": {"types", "extend", "extras", "strategies"} | STAGES,
    "boosting": {"types", "wire", "boosting"},
    "pytest_plugin": {"sim"},
    "planner": {"types", "wire", "sim", "planner"},
    # the runner of scripts writes timelines
    "sim": BASE | {"sim", "metrics.timeline", "figures.timeline"},
    "train": {"types", *RESULTS},
    "task": {"types", "data", "evaluation", "models"},
    "problems": {"types", "extend", "strategies", "task"} | STAGES,
    "doctor": {"types", "processes", "wire.comm"},
    "parity": {"types", "processes", "problems", "case", "strategies"} | STAGES,
    "case": {"types", "train", "problems", "strategies"} | STAGES,
}


def imported(node, path):
    """Yield the absolute names that an import statement brings in."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = Path(path).parent.parts
        base = package[: len(package) + 1 - node.level] if node.level else ()
        module = (node.module,) if node.module else ()
        yield from (".".join((*base, *module, alias.name)) for alias in node.names)


def broken_rules(path, source):
    """Return one line for every statement of source, at path, that breaks the rule."""
    place = Path(path).with_suffix("").parts
    may = {f"dml.{name}" for name in MAY_IMPORT.get(place[1], ())}
    if place[-1] == "__main__":  # a command
        may.add("dml.processes")
    broken = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            broken += ["print"] if place[0] == "dml" else []
        for name in imported(node, path):
            top = name.split(".")[0]
            inside = any(f"{name}.".startswith(f"{allowed}.") for allowed in may)
            if (
                (
                    path == "dml/__init__.py"
                    and top not in ("importlib", "typing", "dml")
                )
                or (top == "mpi4py" and path != MPI and not path.startswith(SINGLE))
                or (place[0] == "dml" and top in ("absl", "experiments", "tests"))
                or (
                    top == "dml"
                    and not inside
                    and len(place) > 1
                    and place[0] == "dml"
                    and path != "dml/__init__.py"
                )
            ):
                broken.append(name)
    return [f"{path}: {what}" for what in broken]


def test_every_file_keeps_the_import_rule():
    files = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("experiments/**/*.py")]
    assert ROOT / "dml/types/comm.py" in files
    broken = [
        line
        for file in files
        for line in broken_rules(file.relative_to(ROOT).as_posix(), file.read_text())
    ]
    assert not broken


def test_importing_dml_imports_no_module_of_it():
    source = "import dml, sys; assert not [m for m in sys.modules if 'dml.' in m]"
    subprocess.run([sys.executable, "-c", source], check=True, cwd=ROOT)


def test_every_module_of_dml_has_a_place_in_the_rule():
    places = {path.stem for path in ROOT.glob("dml/*") if path.suffix in ("", ".py")}
    assert places - {"__pycache__"} <= MAY_IMPORT.keys()


@pytest.mark.parametrize(
    "path, source, name",
    [
        ("dml/data/shards.py", "import dml.wire.memory", "dml.wire.memory"),
        ("dml/data/shards.py", "from ..wire import memory", "dml.wire.memory"),
        ("dml/data/shards.py", "from .. import sim", "dml.sim"),
        ("dml/data/shards.py", "def f():\n    import dml.sim", "dml.sim"),
        ("dml/sim/world.py", "from dml.train import train", "dml.train.train"),
        ("dml/train.py", "from dml.strategies import serial", "dml.strategies.serial"),
        ("dml/stray.py", "import dml.types", "dml.types"),
        ("dml/__init__.py", "import numpy", "numpy"),
        ("dml/train.py", "from absl import flags", "absl.flags"),
        ("experiments/linear.py", "from mpi4py import MPI", "mpi4py.MPI"),
        ("dml/train.py", "def f():\n    print(1)", "print"),
    ],
)
def test_the_rule_catches(path, source, name):
    assert broken_rules(path, source) == [f"{path}: {name}"]


@pytest.mark.parametrize(
    "path, source",
    [
        ("dml/data/shards.py", "from dml.types import Batch\nimport numpy"),
        ("dml/data/shards.py", "from .digits import digits\nfrom . import digits"),
        ("dml/models/networks/transformer.py", "from dml.wire import mesh"),
        ("dml/strategies/serial.py", "from dml import sim, update, wire"),
        ("dml/wire/comm/mpi_library.py", "from mpi4py import MPI"),
        ("dml/train.py", "console.print(1)"),
        ("experiments/linear.py", "from absl import app\nfrom dml.train import train"),
    ],
)
def test_the_rule_allows(path, source):
    assert broken_rules(path, source) == []


def test_modules_that_docstrings_name_exist():
    """In backticks, `wire.comm.mpi.world()` is a file of dml, and a name in it."""
    stages = "|".join(STAGES | {"strategies"})
    named = re.compile(rf"`(?:dml\.)?((?:{stages})(?:\.\w+)+)(?:\(\))?`")
    files = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("experiments/**/*.py")]
    missing = []
    for file in files:
        for name in named.findall(file.read_text()):
            module, _, last = name.rpartition(".")
            place, inside = (f"dml/{n.replace('.', '/')}" for n in (name, module))
            if any((ROOT / f"{place}{end}").exists() for end in ("", ".py")):
                continue
            files = [ROOT / f"{inside}{end}" for end in (".py", "/__init__.py")]
            texts = [one.read_text() for one in files if one.exists()]
            if not any(re.search(rf"\b{last}\b", text) for text in texts):
                missing.append(f"{file.relative_to(ROOT)}: {name}")
    assert not missing
