"""Calls that virtual ranks lack, each with an error that names it."""

from typing import Any

from dml.sim.mpi.constants import lacking
from dml.sim.mpi.handles import Handle, name_handle
from dml.sim.mpi.intracomm import Comm, Intracomm
from dml.sim.mpi.requests import Prequest


class Intercomm(Comm):
    """A communicator of two groups; virtual ranks make none."""


class File(Handle):
    """A file of MPI; virtual ranks open none."""

    null_error = "ERR_FILE"


class Session(Handle):
    """A session of MPI; virtual ranks start none."""

    null_error = "ERR_SESSION"


LACKING: dict[Any, tuple[str, ...]] = {
    Intracomm: (*("Accept", "Connect", "Create_intercomm", "Spawn", "Spawn_multiple"),),
    Comm: ("Join", "Psend_init", "Precv_init", "Iagree", "Ishrink"),
    Intercomm: ("Create_from_groups", "Merge", "Get_remote_group", "Get_remote_size"),
    Prequest: ("Pready", "Pready_range", "Pready_list", "Parrived"),
    File: ("Open", "Delete"),
    Session: ("Init",),
}
for kind, names in LACKING.items():
    for name in names:
        setattr(kind, name, staticmethod(lacking(f"{kind.__name__}.{name}")))


def get_parent() -> Intercomm:
    """Return a null handle: no virtual rank was spawned."""
    return PARENT


Comm.Get_parent = staticmethod(get_parent)  # type: ignore[attr-defined]
PARENT = Intercomm.of(None)
File.root, Session.root = File, Session
name_handle("FILE_NULL", File.of(None))
name_handle("SESSION_NULL", Session.of(None))
