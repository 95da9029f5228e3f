"""A virtual cluster; `run(program, size)` calls program(comm) on every virtual rank.

`MPI` is mpi4py's module of this name on virtual ranks; `MPI.run` gives programs its
communicators. Chapter: docs/virtual.md.
"""

from importlib import import_module
from typing import Any

from dml.sim.comm import VirtualComm as VirtualComm
from dml.sim.evaluate import evaluate as evaluate
from dml.sim.networks.uniform import Uniform as Uniform
from dml.sim.phantom import Phantom as Phantom
from dml.sim.run import run as run
from dml.sim.world import Deadlock as Deadlock
from dml.sim.world import Limits as Limits


def __getattr__(name: str) -> Any:
    if name == "MPI":
        return import_module("dml.sim.mpi")
    raise AttributeError(f"expected a name of dml.sim, got {name!r}")
