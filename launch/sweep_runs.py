"""Run jobs in parallel, each on its own cores.

A run folder gets output.txt and, at the end of the run, sweep.json with the exit code.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from sweep_grid import Cell, folder_name, labels

from dml import processes
from dml.runs import folder as run_folders
from dml.runs import results
from dml.types import BadInput

POLL_INTERVAL = 0.02  # seconds
GRACE_PERIOD = 2.0  # seconds from SIGTERM to SIGKILL
TIMED_OUT = 124  # exit code after a timeout, as in timeout(1)
TAIL_LINES = 6  # lines of the output of a failed run in its record
TAIL_BYTES = 1 << 13  # bytes read to find these lines
# Lines that mpirun prints after the output of a failed rank.
MPIRUN_LINES = re.compile(
    r"[=-]{3}|=  |Abort\(|YOUR APPLICATION|This typically|Please see"
)
# Control sequences of terminals and other characters that cannot be printed.
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# As in launch/environment.sh: threads per rank; oversubscription without binding.
THREAD_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMBA")
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
# Prefixes of variables that are removed: runs are local, even if the sweep is a step of
# Slurm or of MPI.
REMOVED = ("SLURM_", "PMI_", "PMIX_")


class Job(NamedTuple):
    """A run of a sweep."""

    label: str  # flags that differ between cells
    cell: Cell
    folder: Path
    command: list[str]
    cores: int  # number of cores


class Running(NamedTuple):
    """A running job."""

    job: Job
    process: subprocess.Popen
    cores: list[int]
    started: float  # time.perf_counter at the start

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started


class Ended(NamedTuple):
    """A finished run."""

    job: Job
    code: int
    seconds: float
    error: str  # last lines of the output of a failed run; "" after success


class SweepState(NamedTuple):
    """The jobs of a sweep by state."""

    waiting: list[Job]
    running: list[Running]
    ended: list[Ended]


def jobs(
    script: str, cells: Sequence[Cell], out: Path, mpirun: str, cores: int
) -> list[Job]:
    """Return a job for each distinct cell, with a core per rank up to `cores`.

    Args:
      script: Path of the script.
      cells: Ranks and flags of the runs.
      out: Folder of the sweep.
      mpirun: Path of mpirun.
      cores: Number of cores of the sweep.
    """
    jobs = {}
    for label, cell in zip(labels(cells), cells, strict=True):
        folder = out / folder_name(script, cell)
        ranks = [] if cell.ranks is None else [mpirun, "-n", str(cell.ranks)]
        flags = [f"--{flag}={value}" for flag, value in cell.flags.items()]
        command = [*ranks, sys.executable, script, *flags, f"--out={folder}"]
        jobs[folder] = Job(label, cell, folder, command, min(cell.ranks or 1, cores))
    return list(jobs.values())


def available_cores(limit: int | None) -> list[int]:
    """Return the first `limit` cores that this process may use; all if it is None."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))[:limit]
    return list(range(os.cpu_count() or 1))[:limit]


def execute(
    jobs: Sequence[Job], cores: Sequence[int], timeout: float
) -> Generator[SweepState, None, None]:
    """Run the jobs, largest first; yield the state after every tick.

    Closing the generator terminates all runs.
    """
    free = list(cores)
    state = SweepState(sorted(jobs, key=lambda job: -job.cores), [], [])
    try:
        while state.waiting or state.running:
            for waiting in list(state.waiting):
                if waiting.cores <= len(free):
                    assigned = [free.pop(0) for _ in range(waiting.cores)]
                    state.waiting.remove(waiting)
                    state.running.append(start(waiting, assigned))
            yield state
            time.sleep(POLL_INTERVAL)
            for running in list(state.running):
                timed_out = running.seconds > timeout > 0
                if timed_out:
                    end([running])
                if running.process.poll() is not None:
                    state.running.remove(running)
                    free = sorted(free + running.cores)
                    state.ended.append(
                        conclude(running, timeout if timed_out else None)
                    )
        yield state
    finally:
        end(state.running)


def start(job: Job, cores: list[int]) -> Running:
    """Start a job in an empty folder on these cores."""
    if job.folder.exists():
        shutil.rmtree(job.folder)
    job.folder.mkdir(parents=True)
    threads = str(max(1, job.cores // (job.cell.ranks or 1)))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(REMOVED)
    }
    variables = {f"{library}_NUM_THREADS": threads for library in THREAD_LIBRARIES}
    variables |= {"NPROC": threads, "PYTHONUNBUFFERED": "1"}
    with open(job.folder / "output.txt", "wb") as output, pinned(cores):
        process = subprocess.Popen(
            [*processes.end_with_parent(), *job.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=inherited | MPI | variables,
            start_new_session=True,
        )
    return Running(job, process, cores, time.perf_counter())


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Pin this process to cores; child processes inherit the affinity."""
    if not hasattr(os, "sched_setaffinity"):  # only on Linux
        yield
        return
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)


def end(running: Sequence[Running]) -> None:
    """Terminate runs with their children; mpirun and its ranks share a session."""
    for run in running:
        kill(run.process, signal.SIGTERM)
    deadline = time.perf_counter() + GRACE_PERIOD
    for run in running:
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(max(0.0, deadline - time.perf_counter()))
        kill(run.process, signal.SIGKILL)
        run.process.wait()


def kill(process: subprocess.Popen, number: int) -> None:
    """Send a signal to a run and its children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def conclude(running: Running, timeout: float | None) -> Ended:
    """Return the finished run; write sweep.json, the last file of its folder."""
    job, code, seconds = running.job, running.process.returncode, running.seconds
    kill(running.process, signal.SIGKILL)  # its children
    error = "\n".join(tail(job.folder)[-TAIL_LINES:])
    if timeout is not None:
        code = TIMED_OUT
        error = f"{error}\nended after --timeout={timeout:g} s".strip()
    elif code == 0:
        error = summary_error(job.folder)
    ended = Ended(job, code, seconds, error or ("" if code == 0 else "no output"))
    job.folder.mkdir(parents=True, exist_ok=True)  # a script may have removed it
    run_folders.dump(
        job.folder / "sweep.json",
        {
            "command": job.command,
            "ranks": job.cell.ranks,
            "flags": job.cell.flags,
            "cores": running.cores,
            "code": code,
            "seconds": seconds,
            "error_message": ended.error,
        },
    )
    return ended


def summary_error(folder: Path) -> str:
    """Return why the summary of a run cannot be read; "" if it can be read."""
    try:
        results.read_object(folder / "summary.json")
        return ""
    except BadInput as error:
        return str(error)


def earlier_result(job: Job) -> Ended | None:
    """Return the finished run of an earlier sweep, or None."""
    try:
        record: Mapping[str, Any] = json.loads((job.folder / "sweep.json").read_text())
        if Cell(record["ranks"], record["flags"]) != job.cell:
            return None
        return Ended(job, record["code"], record["seconds"], record["error_message"])
    # missing, or incomplete because the sweep was killed
    except (OSError, ValueError, TypeError, KeyError):
        return None


def done(job: Job) -> bool:
    """Return True if a job succeeded in an earlier sweep and has a summary."""
    ended = earlier_result(job)
    return ended is not None and not ended.error and not summary_error(job.folder)


def tail(folder: Path) -> list[str]:
    """Return the last lines of a run's output, without empty lines and mpirun noise."""
    try:
        with open(folder / "output.txt", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except OSError:  # removed by the script
        return []
    lines = (CONTROL.sub("", line).strip() for line in text.split("\n"))
    return [line for line in lines if line and not MPIRUN_LINES.match(line)]
