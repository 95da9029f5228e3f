"""Stand-ins for packages that take long to import, while a command prints its help.

Help needs the names and defaults of flags, but nothing of these packages. Commands
import `lab` before them (experiments/ruff.toml).
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGES = ("jax", "jaxlib", "optax", "flax", "numba", "scipy", "matplotlib", "mpi4py")
HELP = {"-h", "--help", "--help=all"}  # flags that print the help


class StandIn(ModuleType):
    """A module whose attributes are stand-ins: functions, decorators and classes."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, other: Any) -> Any:  # in annotations
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return ()  # as a base class


class Finder(MetaPathFinder, Loader):
    """Finds a stand-in for each of PACKAGES and their modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        package = name.partition(".")[0]
        return ModuleSpec(name, self) if package in PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """No-op: a stand-in has no code."""


def install() -> None:
    """Replace the packages for the rest of this process."""
    sys.meta_path.insert(0, Finder())
