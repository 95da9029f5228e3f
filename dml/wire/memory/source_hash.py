"""Compiled loops that close over modules, and are compiled anew when a source changes.

Numba keeps compiled code on disk by the name of a function, and compares the source of
its own file only. So the name has a hash of all sources that a loop calls.
"""

import functools
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit


def compiled(*modules: ModuleType) -> Callable[[Callable[..., Any]], Callable]:
    """Return a decorator that compiles a loop.

    modules: those that the loop closes over. They are in its name: code that is kept by
        one name is read together, types included, and a run may not be able to import
        the classes of a model that is not its own.
    """

    def named(loop: Callable[..., Any]) -> Callable:
        key = source_hash(*modules, sys.modules[loop.__module__])
        last = [module.__name__.split(".")[-1] for module in modules]
        loop.__qualname__ = ".".join([loop.__name__, *last, f"{key}"])
        return njit(nogil=True, cache=True)(loop)

    return named


@functools.cache
def source_hash(*modules: ModuleType) -> int:
    """Return a hash of the sources of modules, and of the functions that they call."""
    found: set[ModuleType] = set()
    for module in modules:
        callees(module, found)
    paths = sorted(str(module.__file__) for module in found)
    return functools.reduce(
        lambda all, path: zlib.crc32(Path(path).read_bytes(), all), paths, 0
    )


def callees(module: ModuleType, found: set[ModuleType]) -> None:
    """Add a module, and the modules of the compiled functions that it imports."""
    found.add(module)
    for one in vars(module).values():
        home = sys.modules.get(getattr(one, "__module__", None) or "")
        if hasattr(one, "py_func") and home and home not in found:
            callees(home, found)
