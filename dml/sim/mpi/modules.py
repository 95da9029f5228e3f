"""Modules of a script that runs on many virtual ranks, one copy for each rank.

The script and the modules of its folder are executed once per rank; all other modules
are shared. Code is compiled once.
"""

import builtins
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, resolve_name, spec_from_file_location
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dml.sim.mpi.ranks import CURRENT

OWN = "__rank_modules__"


class OnceLoader(SourceFileLoader):
    """Compiles a file at its first use."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType:
        if self.code is None:
            data = self.get_data(self.path)
            self.code = self.source_to_code(data, self.path)
        return self.code


class Folder:
    """The folder of a script, with the files that were found in it.

    Attributes:
      builtins: Builtins of the modules of all ranks, whose `__import__` finds those of
        the rank that imports.
    """

    def __init__(self, path: str):
        self.path = path
        self.specs: dict[str, ModuleSpec | None] = {}
        self.builtins = {**vars(builtins), "__import__": self.find}

    def find(
        self, name: str, globals: Any = None, *rest: Any, **options: Any
    ) -> ModuleType:
        """Import a module: `__import__` of the modules of all ranks."""
        modules = globals.get(OWN) if globals else None
        if modules is None:  # code executed in another namespace
            rank = CURRENT.get(None)
            if rank is None:
                return builtins.__import__(name, globals, *rest, **options)
            modules = RankModules(self, rank.modules)
        return modules.find(name, globals, *rest, **options)

    def spec(self, name: str, path: list[str]) -> ModuleSpec | None:
        """Return the spec of a Python file or package; None if there is none."""
        if name not in self.specs:
            found = PathFinder.find_spec(name, path)
            self.specs[name] = None
            if found is not None and isinstance(found.loader, SourceFileLoader):
                self.specs[name] = self.once(name, found)
        return self.specs[name]

    def once(self, name: str, found: ModuleSpec) -> ModuleSpec | None:
        assert found.origin is not None
        return spec_from_file_location(
            name,
            found.origin,
            loader=OnceLoader(name, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )


class RankModules:
    """The modules of one rank, each of which refers to this object by the name OWN.

    Attributes:
      modules: The rank's own modules, by name.
    """

    def __init__(self, folder: Folder, modules: dict[str, ModuleType]):
        self.folder, self.modules = folder, modules

    def execute(self, spec: ModuleSpec, name: str) -> ModuleType:
        """Make a module of this rank and execute its code."""
        loader, module = spec.loader, module_from_spec(spec)
        assert isinstance(loader, OnceLoader)
        module.__name__ = name
        vars(module).update({"__builtins__": self.folder.builtins, OWN: self})
        self.modules[name] = module
        try:
            # Unlike exec, a call of Python adds nothing to the C stack of the greenlet,
            # which is copied at each switch.
            FunctionType(loader.get_code(name), vars(module))()
        except BaseException:
            if name != "__main__":
                del self.modules[name]
            raise
        return module

    def find(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module of this rank, or one that all ranks share."""
        absolute = name
        if level:
            absolute = resolve_name("." * level + name, globals["__package__"])
        top = absolute.partition(".")[0]
        if not self.is_own(top):
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = self.load(absolute)
        if not fromlist:
            return module if level else self.modules[top]
        for attribute in fromlist:
            if attribute != "*" and not hasattr(module, attribute):
                self.child(module, attribute)
        return module

    def is_own(self, top: str) -> bool:
        if top in self.modules:
            return True
        if top in sys.modules or top in sys.builtin_module_names:
            return False
        return self.folder.spec(top, [self.folder.path]) is not None

    def load(self, name: str) -> ModuleType:
        """Return a module of this rank, after its packages."""
        if name in self.modules:
            return self.modules[name]
        package, _, last = name.rpartition(".")
        if not package:
            spec = self.folder.spec(name, [self.folder.path])
            if spec is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return self.execute(spec, name)
        module = self.child(self.load(package), last)
        if module is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return module

    def child(self, package: ModuleType, last: str) -> ModuleType | None:
        """Return a module of a package; None if it has none of this name."""
        name = f"{package.__name__}.{last}"
        if name in self.modules:
            return self.modules[name]
        path = getattr(package, "__path__", None)
        spec = self.folder.spec(name, [*path]) if path is not None else None
        if spec is None:
            return None
        module = self.execute(spec, name)
        setattr(package, last, module)
        return module
