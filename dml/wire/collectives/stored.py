"""Measurements of a machine, stored in a JSON file: name of the machine -> value."""

import json
import os
from pathlib import Path
from typing import Any

from dml.types import Comm


def path(file: str) -> Path:
    """Return the path of a file in the cache."""
    home = Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()
    return home / file


def read(file: str, comm: Comm) -> Any:
    """Return the value of this machine and number of ranks; None if there is none.

    Collective: rank 0 reads the file, and the others return None.
    """
    name = machine(comm)
    return read_all(file).get(name) if comm.rank == 0 else None


def write(file: str, comm: Comm, value: Any) -> None:
    """Store the value of this machine and number of ranks, if the file is writable.

    Collective: rank 0 writes.
    """
    name = machine(comm)
    if comm.rank:
        return
    stored, target = read_all(file) | {name: value}, path(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # replaced at once, because runs may read and write the file simultaneously
        temporary = target.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(stored, indent=1))
        temporary.replace(target)
    except OSError:
        pass


def read_all(file: str) -> dict[str, Any]:
    """Return the values of all machines; none if the file is missing or damaged."""
    try:
        stored = json.loads(path(file).read_text())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def machine(comm: Comm) -> str:
    """Return the machine's name, MPI library and ranks per host; collective."""
    from dml.wire.comm import mpi  # starts MPI

    return mpi.machine(comm)
