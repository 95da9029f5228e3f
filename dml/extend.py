"""Own all-reduces, strategies, problems and reducers, next to those of tables.

--algorithms=ring,./mine.py:swing        an object of a file
--algorithms=ring,package.module:swing   an object of an installed module
--algorithms=ring,swing                  an entry point of an installed package:

[project.entry-points."dml.allreduces"]
swing = "package.module:swing"
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from dml.types import BadInput

ALLREDUCES = "dml.allreduces"  # groups of entry points
STRATEGIES = "dml.strategies"
PROBLEMS = "dml.problems"
REDUCERS = "dml.reducers"


def find(name: str, table: Mapping[str, Any], group: str) -> Any:
    """Return an object by its name.

    Args:
      name: Key of the table, `FILE.py:NAME`, `MODULE:NAME`, or name of an entry point.
      table: Objects by name.
      group: Group of the entry points, such as ALLREDUCES.

    Raises:
      BadInput: There is no such object, or it cannot be called.
    """
    if name in table:
        return table[name]
    if ":" in name:
        return load(name)
    point = installed(group).get(name)
    if point is None:
        raise BadInput(
            f"expected one of {', '.join(names(table, group))}, or FILE.py:NAME, got "
            f"{name!r}; correct the name"
        )
    return point.load()


def names(table: Mapping[str, Any], group: str) -> list[str]:
    """Return the names of a table and of the entry points of a group."""
    return [*table, *(name for name in installed(group) if name not in table)]


def known(name: str, table: Mapping[str, Any], group: str) -> bool:
    """Return whether `find` looks for the name: in a table, a group or a file."""
    return ":" in name or name in names(table, group)


def label(name: str) -> str:
    """Return the short name of an object: NAME of `FILE.py:NAME`."""
    return name.rpartition(":")[2]


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def load(name: str) -> Callable[..., Any]:
    """Return the object `FILE.py:NAME` or `MODULE:NAME`."""
    source, _, attribute = name.rpartition(":")
    module = of_file(Path(source)) if source.endswith(".py") else of_name(source)
    found = getattr(module, attribute, None)
    if callable(found):
        return found
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    raise BadInput(
        f"expected a function of {source}, such as {', '.join(own) or 'one in it'}, "
        f"got {attribute!r}; correct the name after the colon"
    )


def of_name(name: str) -> ModuleType:
    """Import an installed module."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise BadInput(
            f"expected a Python file or an installed module, got {name!r}; pass "
            "FILE.py:NAME or MODULE:NAME"
        ) from error


def of_file(path: Path) -> ModuleType:
    """Import a file once; files next to it can be imported by it."""
    if not path.is_file():
        raise BadInput(f"expected a Python file, got {str(path)!r}; correct the path")
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
