"""Flags of a sweep and of its script; read the cells from the command line."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import sweep_grid
from absl import flags
from sweep_grid import Cell

from dml.types import BadInput

# a flag in the help of an experiment, or in the output of absl's --help
FLAG = re.compile(r"^  (?:-\w,)?--(\[no\])?(\w+)(?=[:=\s])", re.MULTILINE)
# seconds for --help of a script; loading jax from a cold disk takes tens of seconds
HELP_TIMEOUT = 300.0


def define() -> flags.FlagValues:
    """Return the flags of the sweep; all other flags belong to the script."""
    values = flags.FlagValues()
    values.set_gnu_getopt()
    options = {"flag_values": values}
    flags.DEFINE_boolean("help", False, "Show this help.", **options)
    flags.DEFINE_string(
        "n",
        None,
        "Numbers of ranks, such as 1,2,4; default: runs without MPI.",
        **options,
    )
    flags.DEFINE_integer("repeat", 1, "Number of seeds of each cell.", 1, **options)
    flags.DEFINE_integer(
        "random",
        None,
        "Number of random cells; default: all cells of a grid.",
        1,
        **options,
    )
    flags.DEFINE_integer("sweep_seed", 0, "Random seed of --random.", **options)
    flags.DEFINE_string(
        "out", None, "Output folder; default: runs/sweeps/<script>.", **options
    )
    flags.DEFINE_integer("jobs", None, "Number of cores; default: all.", 1, **options)
    flags.DEFINE_float(
        "timeout", 0.0, "Time limit of a run in seconds; 0 for none.", 0, **options
    )
    flags.DEFINE_boolean(
        "dry_run", False, "Print the commands without running them.", **options
    )
    flags.DEFINE_integer(
        "only",
        None,
        "Index of the only cell to run, from 0; default: all cells.",
        0,
        **options,
    )
    flags.DEFINE_boolean(
        "slurm", False, "Submit the missing cells as a Slurm array.", **options
    )
    flags.DEFINE_string(
        "x", None, "X axis of the figure: n, a flag or a result.", **options
    )
    flags.DEFINE_string(
        "y", None, "Y axis of the figure, and column of the table.", **options
    )
    flags.DEFINE_string(
        "by", None, "Flag whose values have a curve each in the figure.", **options
    )
    flags.DEFINE_enum(
        "log", "", ["", "x", "y", "xy"], "Logarithmic axes of the figure.", **options
    )
    return values


def read(values: flags.FlagValues, argv: Sequence[str]) -> tuple[str, list[Cell]]:
    """Return the script and the cells to run."""
    script, others = parse(values, argv)
    return script, cells(values, script, others)


def parse(values: flags.FlagValues, argv: Sequence[str]) -> tuple[str, list[str]]:
    """Set the flags of the sweep; return the script and its arguments."""
    values.unparse_flags()
    try:
        _, *others = values(argv, known_only=True)
    except (flags.Error, ValueError) as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if values.help:
        sys.stdout.write(f"{sys.modules['__main__'].__doc__}\n{values.get_help()}\n")
        sys.exit(0)
    if values.x and not values.y:
        raise BadInput("expected --y with --x, got none; pass --y=<a result>")
    if not others or others[0].startswith("-"):
        got = others[0] if others else "none"
        raise BadInput(
            f"expected a script first, got {got}; pass a script before its flags"
        )
    return others[0], [other for other in others[1:] if other != "--"]


def cells(values: flags.FlagValues, script: str, argv: Sequence[str]) -> list[Cell]:
    """Return the cells to run, in order."""
    known = script_flags(script)
    flag_values = sweep_grid.parse_flags(argv, known, script)
    if "out" in flag_values:
        raise BadInput(
            "expected --out before --, got it after; the sweep sets the script's --out"
        )
    if "seed" in known:
        flag_values["seed"] = sweep_grid.seeds(flag_values, values.repeat)
    elif values.repeat > 1:
        raise BadInput(
            f"expected a script with --seed for --repeat={values.repeat}, got "
            f"{script}; remove --repeat"
        )
    ranks = sweep_grid.rank_counts(values.n) if values.n is not None else [None]
    if values.random is None:
        return sweep_grid.grid(ranks, flag_values)
    return sweep_grid.random_cells(ranks, flag_values, values.random, values.sweep_seed)


def script_flags(script: str) -> dict[str, bool]:
    """Return the flags in the script's help; True for boolean flags.

    A script whose --help names --help=all is asked for that.
    """
    if not os.access(script, os.R_OK) or not Path(script).is_file():
        problem = "which is not readable" if Path(script).exists() else "no such file"
        raise BadInput(f"expected a script, got {script}, {problem}; correct the path")
    result = help_of(script, "--help")
    if b"--help=all" in result.stdout:
        result = help_of(script, "--help=all")
    text = result.stdout.decode(errors="replace")
    flags = {flag: bool(negation) for negation, flag in FLAG.findall(text)}
    if result.returncode or "out" not in flags:
        lines = result.stderr.decode(errors="replace").split("\n")[:-1]
        *_, last = ["nothing", *lines]
        got = f"code {result.returncode}: {last}" if result.returncode else "none"
        raise BadInput(
            f"expected {script} --help to list flags, including --out, got {got}; "
            "fix the script"
        )
    return {
        name: boolean
        for name, boolean in flags.items()
        if name not in ("help", "flagfile", "undefok")
    }


def help_of(script: str, flag: str) -> subprocess.CompletedProcess:
    """Return the output of a script with a flag that prints its help."""
    try:
        return subprocess.run(
            [sys.executable, script, flag],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HELP_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"expected {script} {flag} to end, got {error}; fix the script"
        ) from error
