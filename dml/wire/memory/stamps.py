"""A number that changes when the source of a module does.

Compiled kernels are kept on disk. Those that call a model's functions close over its
stamp too, so that a model that was edited is compiled anew; and are named after it.
"""

import functools
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Kernel = TypeVar("Kernel", bound=Callable)


@functools.cache
def stamp(*modules: ModuleType) -> int:
    """Return one number for the sources of these modules, and of what they call."""
    found: set[ModuleType] = set()
    for module in modules:
        callees(module, found)
    paths = sorted(str(module.__file__) for module in found)
    return functools.reduce(lambda all, path: zlib.crc32(_source(path), all), paths, 0)


def named(*modules: ModuleType) -> Callable[[Kernel], Kernel]:
    """Name a kernel, before it is compiled, after the modules that it closes over.

    What is kept by one name is read as a whole, types included. So no run needs to have
    the classes of a model that is not its own, which it may not be able to import.
    """

    def renamed(kernel: Kernel) -> Kernel:
        last = [module.__name__.split(".")[-1] for module in modules]
        kernel.__qualname__ = ".".join([kernel.__name__, *last, f"{stamp(*modules)}"])
        return kernel

    return renamed


def callees(module: ModuleType, found: set[ModuleType]) -> None:
    """Add a module, and those whose compiled functions it has by their names."""
    found.add(module)
    for one in vars(module).values():
        home = sys.modules.get(getattr(one, "__module__", None) or "")
        if hasattr(one, "py_func") and home and home not in found:
            callees(home, found)


def _source(path: str) -> bytes:
    return Path(path).read_bytes()
