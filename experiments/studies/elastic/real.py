"""A training on real ranks, of which some are killed at random moments."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import started

from dml import processes
from dml.runs import results
from dml.types import BadInput

MEAN = 6.0  # seconds between two kills by default
POLL_SECONDS = 0.02
SCRIPT = str(Path(__file__).parents[2] / "vision.py")
RANK = "OMPI_COMM_WORLD_RANK"  # variable of a rank of Open MPI
# Open MPI refuses root and more ranks than cores by default.
PERMISSIONS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


class Kill(NamedTuple):
    """A worker that was killed: the time in s, and its process or virtual rank."""

    time: float
    process: int


class ElasticPlan(NamedTuple):
    """Ranks and kills of a run.

    Attributes:
      ranks: Number of workers and spares; the last ranks are spares.
      spares: Number of spares, which are not killed.
      kills: Number of workers to kill.
      mean: Mean seconds between two kills; exponential.
      seed: Random seed of moments and victims.
    """

    ranks: int
    spares: int
    kills: int
    mean: float
    seed: int

    @property
    def workers(self) -> int:
        """Number of workers at the start."""
        return self.ranks - self.spares

    @property
    def most_kills(self) -> int:
        """Number of kills after which a worker remains."""
        return min(self.kills, self.workers, self.ranks - 1)


def has_ulfm() -> bool:
    """Return whether mpirun is one of Open MPI with ULFM."""
    try:
        info = Path(processes.mpirun()).with_name("ompi_info")
    except BadInput:
        return False
    if not info.exists():
        return False
    text = subprocess.run([info], capture_output=True, text=True).stdout
    return "FT MPI support: yes" in text


def train(
    plan: ElasticPlan, options: Sequence[str], out: Path
) -> tuple[list[Kill], list[tuple[float, int]]]:
    """Run vision.py on ranks that are killed; return the kills and the progress.

    Args:
      plan: Ranks and kills.
      options: Flags of vision.py.
      out: Run folder.

    Returns:
      Kills, and pairs (time, number of updates), both in seconds of time.time().
    """
    start, python = started.python(plan.ranks)[:-1], sys.executable
    command = [*start[:-2], "--with-ft", "ulfm", *start[-2:], python, SCRIPT]
    with (out.parent / "run.log").open("w") as log:
        child = subprocess.Popen(
            [*command, *options, "--overwrite", f"--out={out}"],
            env=started.environment() | PERMISSIONS,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    draws = random.Random(plan.seed)
    done: list[Kill] = []
    progress: list[tuple[float, int]] = []
    due = 0.0
    while child.poll() is None:
        time.sleep(POLL_SECONDS)
        updates = count_lines(out / "metrics.jsonl")
        now = time.time()
        if updates and (not progress or updates > progress[-1][1]):
            progress.append((now, updates))
        due = due or (now + draws.expovariate(1 / plan.mean) if updates else 0.0)
        recovered = count_lines(out / "recoveries.jsonl") >= len(done)
        if due and now >= due and len(done) < plan.most_kills and recovered:
            victim = draws.choice(workers_of(child.pid, plan.workers))
            done.append(Kill(time.time(), victim))
            os.kill(victim, signal.SIGKILL)
            due = now + draws.expovariate(1 / plan.mean)
    if results.folder_status(out) != results.DONE:
        text = " ".join((out.parent / "run.log").read_text(errors="replace").split())
        raise BadInput(
            f"expected a complete run, got exit code {child.returncode}: {text[-500:]}"
        )
    return done, progress


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def workers_of(mpirun: int, workers: int) -> list[int]:
    """Return the living processes of the first workers of an mpirun.

    Args:
      mpirun: Process of mpirun.
      workers: Number of workers at the start, which are the first ranks.
    """
    names = {f"{RANK}={rank}".encode() for rank in range(workers)}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            is_rank = SCRIPT.encode() in arguments[1:2]
            if stat[0] != "Z" and is_rank and not names.isdisjoint(variables):
                parents[int(folder.name)] = int(stat[1])
    return sorted(process for process in parents if is_below(process, mpirun))


def is_below(process: int, ancestor: int) -> bool:
    while process > 1 and process != ancestor:
        try:
            text = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return False
        process = int(text.rpartition(")")[2].split()[1])
    return process == ancestor


def recoveries(out: Path) -> list[dict[str, Any]]:
    """Return the recoveries that worker 0 has written."""
    path = out / "recoveries.jsonl"
    return results.read_rows(path) if path.exists() else []


def summary(out: Path) -> dict[str, Any]:
    """Return the summary of an elastic run."""
    return results.read_object(out / "summary.json")
