"""Compiled loops whose cached code depends on the sources of all functions they call.

Numba caches compiled code on disk under the name of a function, and recompiles it only
if the function's own file changes. Therefore the name contains a hash of the sources of
all functions that the loop calls.
"""

import functools
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from numba import njit


def compile_loop(
    *modules: ModuleType, **options: Any
) -> Callable[[Callable[..., Any]], Callable]:
    """Return a decorator that compiles a loop.

    The name of the compiled loop contains the names of the modules. Numba loads all
    code that is cached under one name, including its types, and a run may be unable to
    import the classes of another run's model.

    Args:
      modules: The modules that the loop closes over.
      **options: Further options of Numba, such as error_model.
    """

    def decorate(loop: Callable[..., Any]) -> Callable:
        key = source_hash(*modules, sys.modules[loop.__module__])
        names = [module.__name__.split(".")[-1] for module in modules]
        loop.__qualname__ = ".".join([loop.__name__, *names, f"{key}"])
        return njit(nogil=True, cache=True, **options)(loop)

    return decorate


@functools.cache
def source_hash(*modules: ModuleType) -> int:
    """Return a hash of the files of modules and of the compiled code that they call."""
    sources: set[ModuleType] = set()
    for module in modules:
        add_callees(module, sources)
    paths = sorted(str(module.__file__) for module in sources)
    return functools.reduce(
        lambda crc, path: zlib.crc32(Path(path).read_bytes(), crc), paths, 0
    )


def add_callees(module: ModuleType, sources: set[ModuleType]) -> None:
    """Add to `sources` a module and the modules of compiled functions that it uses."""
    sources.add(module)
    for value in vars(module).values():
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        if hasattr(value, "py_func") and home and home not in sources:
            add_callees(home, sources)
