"""Scripts that import mpi4py, executed on every virtual rank."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dml.sim import mpi
from dml.sim.mpi.modules import Folder, OnceLoader, RankModules, spec_from_file_location
from dml.sim.mpi.ranks import CURRENT
from dml.sim.mpi.ranks import Aborted as Aborted
from dml.sim.mpi.running import run
from dml.types import BadInput

VERSION = "4.1"  # of mpi4py, whose names the module has


class Finished(NamedTuple):
    """Results of the ranks of a script."""

    seconds: list[float]  # virtual time at the end of each rank
    messages: int
    nbytes: int
    codes: list[int]  # exit code of each rank


class ScriptError(Exception):
    """An exception of a script on one rank."""

    def __init__(self, rank: int, reason: BaseException):
        super().__init__(f"rank {rank}: {reason}")
        self.rank, self.reason = rank, reason


def packages() -> dict[str, ModuleType]:
    """Return modules named mpi4py and mpi4py.MPI on virtual ranks.

    If mpi4py is installed, its other modules, such as mpi4py.util, are found.
    """
    package = ModuleType("mpi4py", "mpi4py on virtual ranks.")
    installed = PathFinder.find_spec("mpi4py")
    places = installed.submodule_search_locations if installed is not None else None
    vars(package).update(
        __path__=[*places] if places else [],
        __version__=VERSION,
        MPI=mpi,
        rc=Settings(),
        get_include=lambda: "",
        get_config=dict,
        profile=lambda *arguments, **options: None,
    )
    return {"mpi4py": package, "mpi4py.MPI": mpi}


class Settings:
    """mpi4py.rc: virtual ranks accept all settings and need none."""

    initialize = finalize = threads = True
    thread_level, errors = "multiple", "exception"
    fast_reduce, recv_mprobe, irecv_bufsz = True, True, 32768

    def __call__(self, **options: Any) -> None:
        for name, value in options.items():
            setattr(self, name, value)


@contextmanager
def replaced(path: Path) -> Iterator[None]:
    """Replace mpi4py and what would stop or sleep the process, for a script."""
    made = packages()
    names = {*made, *(name for name in sys.modules if name.startswith("mpi4py."))}
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.modules.update(made)
    kept = os._exit, time.sleep, sys.argv, [*sys.path]
    os._exit, time.sleep = leave, sleep  # type: ignore[assignment]
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        os._exit, time.sleep, sys.argv, sys.path[:] = kept
        for name in [name for name in sys.modules if name.startswith("mpi4py")]:
            del sys.modules[name]
        sys.modules.update({k: v for k, v in before.items() if v is not None})


def leave(code: int) -> None:
    """End all ranks, as the end of one process by os._exit ends a job."""
    rank = CURRENT.get(None)
    if rank is None:
        raise SystemExit(code)
    rank.abort(code)


def sleep(seconds: float) -> None:
    """Advance the virtual time of this rank."""
    rank = CURRENT.get(None)
    if rank is not None:
        rank.process.compute(seconds)


def run_script(
    script: str | Path,
    arguments: Sequence[str],
    size: int,
    network: Any = None,
    **options: Any,
) -> Finished:
    """Execute a script on virtual ranks.

    Args:
      script: Path of the script.
      arguments: Its arguments, sys.argv[1:].
      size: Number of ranks.
      network: See `sim.run`.
      **options: Those of `MPI.run`.

    Raises:
      ScriptError: A rank has raised an exception; the others were ended.
      Aborted: A rank has called Abort.
    """
    path = Path(script)
    if not path.is_file():
        raise BadInput(
            f"expected a script, got {str(script)!r}; pass the path of a file"
        )
    folder = Folder(str(path.parent.resolve()))
    spec = spec_from_file_location(
        "__main__", path, loader=OnceLoader("__main__", str(path))
    )
    assert spec is not None
    seconds, codes, counts = [0.0] * size, [0] * size, [0, 0]

    def program(comm: Any) -> None:
        owner = CURRENT.get()
        sys.argv = [str(script), *arguments]
        try:
            RankModules(folder, owner.modules).execute(spec, "__main__")
        except SystemExit as end:
            codes[comm.rank] = exit_code(end)
        except Exception as reason:
            raise ScriptError(comm.rank, reason) from reason
        finally:
            seconds[comm.rank] = owner.process.clock
            counts[0] += owner.messages
            counts[1] += owner.nbytes

    with replaced(path.resolve()):
        run(program, size, network, **options)
    return Finished(seconds, counts[0], counts[1], codes)


def exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1
