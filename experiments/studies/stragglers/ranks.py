"""When steps begin: four ways of waiting on running ranks, virtual and real."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lab import estimates, started

from dml import sim
from dml.runs import results
from dml.sim.delays import straggler
from dml.types import BadInput, Comm
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.sleeping import Napping
from studies.stragglers.barriers import Barrier

FREE = sim.Uniform(0, 0, 0)  # messages take no time: what is left is waiting
MESSAGES = 7  # of a worker in a step: 2, 2 and 2 where it waits for others, else 1
SCRIPT = str(Path(__file__).parents[2] / "stragglers.py")
Starts = dict[str, np.ndarray]  # by way


def run_rank(
    comm: Any, table: Mapping[str, Barrier], seconds_TxP: np.ndarray, scale: float = 1.0
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


def virtual(table: Mapping[str, Barrier], seconds_TxP: np.ndarray) -> Starts:
    """Return S_TxP of every way, on virtual ranks."""
    p = seconds_TxP.shape[1]

    def program(comm: Any) -> Starts:
        messages = MESSAGES * p * len(seconds_TxP)
        what = f"{len(seconds_TxP)} steps of {p:,} workers"
        estimates.warn(comm, what, messages, "any")
        return run_rank(comm, table, seconds_TxP)

    *workers, _ = sim.run(program, p + 1, FREE)
    return {name: np.stack([one[name] for one in workers], 1) for name in table}


def measured(
    comm: Comm, table: Mapping[str, Barrier], seconds_TxP: np.ndarray, scale: float
) -> Starts:
    """Return S_TxP of every way, on the real ranks of comm: they sleep."""
    found = {}
    for name, starts_T in run_rank(Napping(comm), table, seconds_TxP, scale).items():
        found[name] = np.zeros_like(seconds_TxP)
        if comm.rank < seconds_TxP.shape[1]:
            found[name][:, comm.rank] = starts_T
        tree_allreduce(comm, found[name])
    return found


def start_measurement(flags: Mapping[str, Any], path: Path) -> subprocess.Popen | None:
    """Start measuring under mpirun, in a run folder of its own; None if not wanted."""
    if not flags["measure"]:
        return None
    try:
        start = started.python(flags["measure"] + 1)
    except BadInput as error:
        sys.stderr.write(f"nothing is measured: {error}\n")
        return None
    here = flags | {"workers": "", "out": path}
    command = [*start, SCRIPT]
    command += [
        f"--{name}={value}" for name, value in here.items() if value is not None
    ]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=started.environment(), text=True, **pipes)


def finish_measurement(
    child: subprocess.Popen | None, path: Path
) -> list[dict[str, Any]]:
    """Return the rows of what began; where there are none, say why."""
    if not child:
        return []
    _, errors = child.communicate()
    if child.returncode:
        last = " ".join(errors.split("\n")[-2:])
        sys.stderr.write(f"nothing is measured: {last}; --measure=0 asks for nothing\n")
        return []
    return results.lines(path / "metrics.jsonl")
