"""A paper and a size in; its commands' runs, and a record of what they say, out."""

import os
import platform
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import started
from papers_claims import Command, Finding, Paper, Seen, found, untested

from dml.metrics import results, runs
from dml.types import BadInput

ROOT = Path(__file__).parents[1]
TINY = "a test's, which says nothing of the paper"  # the scale of the size tiny
Record = dict[str, Any]


class Failed(Exception):
    """A command that ended with another code than 0: says which, and its last line."""


def record(paper: Paper, size: str, path: Path) -> Record:
    """Run a paper's commands one after another; say what every claim's rule finds."""
    begun, seen, why = time.perf_counter(), {}, ""
    try:
        for name, command in paper.commands.items():
            seen[name] = ran(command, size, path / name)
    except (Failed, BadInput) as error:
        why = str(error)
    findings = [untested(why) if why else found(one, seen) for one in paper.claims]
    return {
        "name": paper.name,
        "cited": paper.cited,
        "scale": TINY if size == "tiny" else paper.scale.format(cores=os.cpu_count()),
        "size": size,
        "failed": why,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": runs.commit(),
        "machine": machine(),
        "versions": versions(),
        "seconds": time.perf_counter() - begun,
        **energy(seen),
        "commands": [shown(one, size) for one in paper.commands.values()],
        "findings": [row(paper, i, finding) for i, finding in enumerate(findings)],
    }


def row(paper: Paper, i: int, finding: Finding) -> Record:
    """Return what is kept of a claim: its text, its rule in words, and the finding."""
    claim = paper.claims[i]
    rule = " ".join((claim.rule.__doc__ or "").split())
    says = {"claim": claim.says, "published": claim.published, "rule": rule}
    return says | finding._asdict()


def ran(command: Command, size: str, path: Path) -> results.Run:
    """Run a command of the repository; keep what it prints; read what it leaves."""
    path.mkdir(parents=True, exist_ok=True)
    words = [*started.python(command.ranks), f"experiments/{command.script}"]
    words += [*command.words(size), f"--out={path.resolve()}"]
    output = path / "output.txt"
    with output.open("w") as file:
        code = subprocess.run(
            words,
            cwd=ROOT,
            env=started.environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
        ).returncode
    if code:
        last = (output.read_text().strip().splitlines() or ["nothing was said"])[-1]
        raise Failed(f"{command.script} ended with code {code}: {last}")
    return results.read(path)


def shown(command: Command, size: str) -> str:
    """Return the command as one would type it."""
    start = f"mpirun -n {command.ranks} python" if command.ranks else "python"
    return (
        f"{start} {shlex.join([f'experiments/{command.script}', *command.words(size)])}"
    )


def machine() -> Record:
    """Return what the numbers are of: the processor, its cores, the memory."""
    from hogwild_report import machine

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return machine() | {"memory_gb": round(memory / 1e9)}


def versions() -> dict[str, str]:
    """Return the versions of what the experiments stand on."""
    packages = {name: version(name) for name in ("numpy", "jax", "mpi4py")}
    return {"python": platform.python_version()} | packages


def energy(seen: Seen) -> Record:
    """Return the energy of all runs, if they say it, and how it is known."""
    summaries = [run.summary for run in seen.values()]
    known = [
        one["energy_kwh"] for one in summaries if one.get("energy_kwh") is not None
    ]
    sources = dict.fromkeys(
        one["energy_source"] for one in summaries if one.get("energy_source")
    )
    whole = bool(known) and len(known) == len(summaries)
    return {
        "energy_kwh": sum(known) if whole else None,
        "energy_source": ", ".join(sources),
    }


def figure(paper: Paper, path: Path, to: Path, most: int) -> None:
    """Copy a paper's figure, if there is one of at most so many bytes."""
    to.unlink(missing_ok=True)
    at = path / paper.figure
    if paper.figure and at.exists() and at.stat().st_size <= most:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(at, to)


def failed(records: Sequence[Record]) -> list[str]:
    """Return the papers a command of which has failed."""
    return [one["name"] for one in records if one["failed"]]
