"""Start times of steps under four barriers, on running virtual and real ranks."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import estimates, started
import numpy as np

from dml import sim
from dml.runs import results
from dml.sim.delays import straggler
from dml.types import BadInput, Comm
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.sleeping import Sleeping
from studies.stragglers.barriers import Barrier

NO_COST = sim.Uniform(0, 0, 0)  # messages take no time: only waiting is measured
MESSAGES = 7  # per worker and step: 2 for each of three barriers, 1 without waiting
SCRIPT = str(Path(__file__).parents[2] / "stragglers.py")
Starts = dict[str, np.ndarray]  # start times by name of the barrier


def run_rank(
    comm: Any, table: Mapping[str, Barrier], seconds_TxP: np.ndarray, scale: float = 1.0
) -> Starts:
    """Run all barriers on this rank; return the start times of its steps.

    Args:
        comm: communicator of all workers and the server.
        table: barriers by name.
        seconds_TxP: computing time of each step and worker.
        scale: seconds of the clock per second of seconds_TxP.
    """
    steps, p = seconds_TxP.shape
    starts = {}
    for name, barrier in table.items():
        delays = iter(seconds_TxP[:, comm.rank].tolist() if comm.rank < p else ())
        comm.Barrier()
        begin = comm.Wtime()
        starts_T = barrier.program(comm, straggler(comm, delays, scale), steps)
        starts[name] = (starts_T - begin) / scale
    return starts


def virtual_starts(table: Mapping[str, Barrier], seconds_TxP: np.ndarray) -> Starts:
    """Return the start times of all steps and workers on virtual ranks.

    The last rank is the server.
    """
    p = seconds_TxP.shape[1]

    def program(comm: Any) -> Starts:
        messages = MESSAGES * p * len(seconds_TxP)
        what = f"{len(seconds_TxP)} steps of {p:,} workers"
        estimates.warn(comm, what, messages, "any")
        return run_rank(comm, table, seconds_TxP)

    *workers, _ = sim.run(program, p + 1, NO_COST)
    return {name: np.stack([starts[name] for starts in workers], 1) for name in table}


def real_starts(
    comm: Comm, table: Mapping[str, Barrier], seconds_TxP: np.ndarray, scale: float
) -> Starts:
    """Return the start times of all steps and workers on real ranks, which sleep.

    The arguments are those of `run_rank`.
    """
    starts = {}
    for name, starts_T in run_rank(Sleeping(comm), table, seconds_TxP, scale).items():
        starts[name] = np.zeros_like(seconds_TxP)
        if comm.rank < seconds_TxP.shape[1]:
            starts[name][:, comm.rank] = starts_T
        tree_allreduce(comm, starts[name])
    return starts


def start_measurement(flags: Mapping[str, Any], path: Path) -> subprocess.Popen | None:
    """Start this experiment under mpirun; return None if --measure is 0."""
    if not flags["measure"]:
        return None
    try:
        mpirun = started.python(flags["measure"] + 1)
    except BadInput as error:
        sys.stderr.write(f"no real ranks are measured: {error}\n")
        return None
    child_flags = flags | {"workers": "", "out": path}
    command = [*mpirun, SCRIPT]
    command += [
        f"--{name}={value}" for name, value in child_flags.items() if value is not None
    ]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=started.environment(), text=True, **pipes)


def finish_measurement(
    child: subprocess.Popen | None, path: Path
) -> list[dict[str, Any]]:
    """Return the rows of the child process; print the error if it failed."""
    if not child:
        return []
    _, errors = child.communicate()
    if child.returncode:
        last_lines = " ".join(errors.split("\n")[-2:])
        sys.stderr.write(
            f"no real ranks are measured: {last_lines}; pass --measure=0 to skip this\n"
        )
        return []
    return results.read_rows(path / "metrics.jsonl")
