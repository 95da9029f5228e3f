"""When steps begin: four ways of waiting on running ranks, virtual and real."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stragglers_ways import Way

from dml import sim
from dml.sim.interrupt import LOOK, straggler
from dml.types import Comm, Request
from dml.wire.messages import tree_allreduce

FREE = sim.Uniform(0, 0, 0)  # messages take no time: what is left is waiting
TIMEOUT = 300  # seconds for all real ranks
Starts = dict[str, np.ndarray]  # by way


class Napping:
    """A real communicator that sleeps while it waits: ranks outnumber the cores.

    MPI's own waiting would take the core of a rank whose time to wake has come.
    """

    def __init__(self, comm: Comm):
        self.comm = comm

    def Recv(self, buf: np.ndarray, source: int, tag: int, status: Any = None) -> None:
        self.Irecv(buf, source, tag).Wait(status)

    def Irecv(self, buf: np.ndarray, source: int, tag: int) -> "Nap":
        return Nap(self.comm.Irecv(buf, source, tag))

    def Split(self, color: int, key: int) -> "Napping":
        return Napping(self.comm.Split(color, key))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


class Nap:
    """A request whose Wait sleeps."""

    def __init__(self, request: Request):
        self.request, self.Test = request, request.Test

    def Wait(self, status: Any = None) -> bool:
        while not self.Test(status):
            time.sleep(LOOK)
        return True


def live(
    comm: Any, table: Mapping[str, Way], seconds_TxP: np.ndarray, scale: float = 1.0
) -> Starts:
    """Go through all ways; return when this rank's steps began."""
    steps, p = seconds_TxP.shape
    found = {}
    for name, way in table.items():
        mine = iter(seconds_TxP[:, comm.rank].tolist() if comm.rank < p else ())
        comm.Barrier()
        begin = comm.Wtime()
        starts_T = way.program(comm, straggler(comm, mine, scale), steps)
        found[name] = (starts_T - begin) / scale
    return found


def virtual(table: Mapping[str, Way], seconds_TxP: np.ndarray) -> Starts:
    """Return S_TxP of every way, on virtual ranks."""
    p = seconds_TxP.shape[1]
    *workers, _ = sim.run(lambda comm: live(comm, table, seconds_TxP), p + 1, FREE)
    return {name: np.stack([one[name] for one in workers], 1) for name in table}


def measured(
    comm: Comm, table: Mapping[str, Way], seconds_TxP: np.ndarray, scale: float
) -> Starts:
    """Return S_TxP of every way, on the real ranks of comm: they sleep."""
    found = {}
    for name, starts_T in live(Napping(comm), table, seconds_TxP, scale).items():
        found[name] = np.zeros_like(seconds_TxP)
        if comm.rank < seconds_TxP.shape[1]:
            found[name][:, comm.rank] = starts_T
        tree_allreduce(comm, found[name])
    return found


def elsewhere(flags: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """Measure under mpirun, in a run folder of its own; return its rows.

    Where that cannot be done, say so, and return none.
    """
    places = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    mpirun = shutil.which("mpirun", path=places)
    if not mpirun:
        sys.stderr.write("no mpirun is here: nothing is measured\n")
        return []
    here = flags | {"workers": "", "out": path}
    command = [mpirun, "-n", str(flags["measure"] + 1), sys.executable, sys.argv[0]]
    command += [f"--{name}={value}" for name, value in here.items()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:]
        sys.stderr.write(f"nothing is measured, mpirun says: {' '.join(last)}\n")
        return []
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
