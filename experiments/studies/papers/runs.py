"""The papers of papers.toml: their commands, and the record of runs and verdicts."""

import os
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lab import started
from lab.claims import Claim, Verdict, judge, untestable_claim, untested

from dml.runs import folder as run_folders
from dml.runs import results
from dml.runs.hardware import describe_processor, load_of_others
from dml.runs.results import Run
from dml.types import BadInput

ROOT = Path(__file__).parents[3]
SIZES = ("full", "quick", "tiny")
TINY = "that of a test, too small to judge the paper"  # scale of the size tiny
Record = dict[str, Any]


class Command(NamedTuple):
    """An experiment, its flags at full size, and the flags that make it smaller."""

    script: str
    flags: str = ""
    quick: str = ""
    tiny: str = ""
    ranks: int = 0  # number of ranks that mpirun starts; 0: no mpirun

    def words(self, size: str) -> list[str]:
        """Return the flags of a size; later ones replace earlier ones."""
        more = {"full": "", "quick": self.quick, "tiny": self.tiny}[size]
        words = f"{self.flags} {more}".split()
        return list({word.partition("=")[0]: word for word in words}.values())

    def processes(self, size: str) -> int:
        """Return the number that mpirun starts; 0 if the ranks are virtual."""
        virtual = any(word.startswith("--simulate=") for word in self.words(size))
        return 0 if virtual else self.ranks


class Judged(NamedTuple):
    """A claim, and the commands whose runs its rule takes."""

    claim: Claim
    commands: tuple[str, ...]


class Paper(NamedTuple):
    """A table of papers.toml; a paper without commands cannot be run."""

    name: str
    cited: str  # authors, title, venue, year
    scale: str  # scale of our runs and of the paper; {cores}: number of our cores
    claims: Sequence[Judged]
    commands: Mapping[str, Command] = {}
    figure: str = ""
    seconds: Sequence[int] = (0, 0)


def read(path: Path) -> dict[str, Paper]:
    """Return the papers of a file by name; its first lines explain the fields."""
    tables = tomllib.loads(path.read_text("utf-8"))
    return {name: paper(name, **table) for name, table in tables.items()}


def paper(
    name: str,
    cited: str,
    scale: str,
    claims: Sequence[str] = (),
    untestable: Sequence[str] = (),
    commands: Mapping[str, Any] = {},
    **fields: Any,
) -> Paper:
    """Return the paper of a table."""
    judged = [
        Judged(claim, tuple(runs.split()))
        for runs, _, names in (line.partition(": ") for line in claims)
        for claim in imported(names)
    ]
    if untestable:
        judged.append(Judged(untestable_claim(*untestable), ()))
    made = {name: Command(**fields) for name, fields in commands.items()}
    return Paper(name, cited, scale, judged, made, **fields)


def imported(names: str) -> list[Claim]:
    """Import claims by names such as glove.claims.CLAIMS, relative to studies."""
    claims: list[Claim] = []
    for name in names.split():
        module, _, attribute = name.rpartition(".")
        value = getattr(import_module(f"studies.{module}"), attribute)
        claims += [value] if isinstance(value, Claim) else value
    return claims


class Failed(Exception):
    """A command ended with an exit code other than 0."""


def record(paper: Paper, size: str, path: Path, commit: str | None) -> Record:
    """Run a paper's commands one after another; judge all its claims.

    `commit` is read before the first paper: each paper changes its record in the docs,
    which is no change of the code.
    """
    begun, runs_by_command, why = time.perf_counter(), {}, ""
    load = load_of_others()
    try:
        for name, command in paper.commands.items():
            runs_by_command[name] = run_command(command, size, path / name)
    except (Failed, BadInput) as error:
        why = str(error)
    return {
        "name": paper.name,
        "cited": paper.cited,
        "scale": TINY if size == "tiny" else paper.scale.format(cores=os.cpu_count()),
        "size": size,
        "failed": why,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "machine": machine(),
        "load": round(load(), 2),
        "versions": run_folders.versions(),
        "seconds": time.perf_counter() - begun,
        **energy(runs_by_command),
        "commands": [
            command_line(command, size) for command in paper.commands.values()
        ],
        "findings": [
            row(
                judged.claim,
                untested(why) if why else judge_claim(judged, runs_by_command),
            )
            for judged in paper.claims
        ],
    }


def judge_claim(judged: Judged, runs_by_command: Mapping[str, Run]) -> Verdict:
    """Judge a claim by the runs of its commands."""
    return judge(judged.claim, *(runs_by_command[name] for name in judged.commands))


def row(claim: Claim, verdict: Verdict) -> Record:
    """Return the record of a claim: its text, its rule in words, and the verdict."""
    return {
        "claim": claim.text,
        "published": claim.published,
        "rule": claim.rule_text,
        "verdict": verdict.result,
        "ours": verdict.measured,
        "because": verdict.reason,
    }


def run_command(command: Command, size: str, path: Path) -> results.Run:
    """Run a command of the repository; write its output to a file; read its run."""
    path.mkdir(parents=True, exist_ok=True)
    words = [*started.python(command.processes(size)), f"experiments/{command.script}"]
    words += [*command.words(size), "--overwrite", f"--out={path.resolve()}"]
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
        last = (output.read_text().strip().splitlines() or ["no output"])[-1]
        raise Failed(f"{command.script} ended with code {code}: {last}")
    return results.read(path)


def command_line(command: Command, size: str) -> str:
    """Return the command line of a command."""
    ranks = command.processes(size)
    start = f"mpirun -n {ranks} python" if ranks else "python"
    return (
        f"{start} {shlex.join([f'experiments/{command.script}', *command.words(size)])}"
    )


def machine() -> Record:
    """Return the processor, its cores, and the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return describe_processor() | {"memory_gb": round(memory / 1e9)}


def energy(runs_by_command: Mapping[str, Run]) -> Record:
    """Return the energy of all runs, None if a run lacks it, and its sources."""
    summaries = [run.summary for run in runs_by_command.values()]
    kwh = [summary.get("energy_kwh") for summary in summaries]
    sources = dict.fromkeys(summary.get("energy_source") for summary in summaries)
    return {
        "energy_kwh": sum(kwh) if kwh and None not in kwh else None,
        "energy_source": ", ".join(filter(None, sources)),
    }


def figure(paper: Paper, path: Path, target: Path, max_bytes: int) -> None:
    """Copy a paper's figure if it has at most the given number of bytes."""
    target.unlink(missing_ok=True)
    source = path / paper.figure
    if paper.figure and source.exists() and source.stat().st_size <= max_bytes:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def seconds(papers: Mapping[str, Paper], names: Sequence[str], size: str) -> float:
    """Return the expected seconds of papers; 0: unknown, as for the size tiny."""
    index = {"full": 0, "quick": 1}.get(size)
    return 0.0 if index is None else sum(papers[name].seconds[index] for name in names)


def failed(records: Sequence[Record]) -> list[str]:
    """Return the names of the papers with a failed command."""
    return [record["name"] for record in records if record["failed"]]


PAPERS = read(Path(__file__).with_name("papers.toml"))
