"""A number that changes when the source of a module does.

Compiled kernels are kept on disk. Those that call a model's functions close over its
stamp too, so that a model that was edited is compiled anew.
"""

import functools
import sys
import zlib
from pathlib import Path
from types import ModuleType


@functools.cache
def stamp(*modules: ModuleType) -> int:
    """Return one number for the sources of these modules, and of what they call."""
    found: set[ModuleType] = set()
    for module in modules:
        callees(module, found)
    paths = sorted(str(module.__file__) for module in found)
    return functools.reduce(lambda all, path: zlib.crc32(_source(path), all), paths, 0)


def callees(module: ModuleType, found: set[ModuleType]) -> None:
    """Add a module, and those whose compiled functions it has by their names."""
    found.add(module)
    for one in vars(module).values():
        home = sys.modules.get(getattr(one, "__module__", None) or "")
        if hasattr(one, "py_func") and home and home not in found:
            callees(home, found)


def _source(path: str) -> bytes:
    return Path(path).read_bytes()
