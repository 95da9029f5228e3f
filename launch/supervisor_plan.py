"""The plan of a supervised run, by the arguments of launch/supervisor.py."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from supervisor_folder import FolderError

SAVE_SECONDS = 10  # between checkpoints, unless the script's flags have --save_every


class Plan(NamedTuple):
    """A supervised run.

    ranks: number of ranks.
    spares: number of deaths after which there are still as many ranks.
    attempts: number of starts without a new checkpoint before the supervisor ends.
    mpirun: path of mpirun.
    script: path of the script.
    flags: flags of the script, without --out, --resume and --overwrite.
    folder: run folder.
    resume: whether the first start resumes the run of the folder.
    overwrite: whether a start replaces the run of the folder.
    """

    ranks: int
    spares: int
    attempts: int
    mpirun: str
    script: str
    flags: list[str]
    folder: Path
    resume: bool
    overwrite: bool


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="supervisor.py", allow_abbrev=False)
    for name in ("ranks", "spares", "attempts"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("script")
    parser.add_argument("flags", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def split_flags(
    words: Sequence[str], names: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the other flags, and the values of the flags with these names.

    Args:
      words: Flags of a script: --name=value, or --name followed by the value.
      names: Names of flags with values.
    """
    others: list[str] = []
    values: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name.startswith("-") and name.lstrip("-") in names:
            values[name.lstrip("-")] = value if equals else next(rest, "")
        else:
            others.append(word)
    return others, values


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan, with a run folder and --save_every if the user has set none."""
    flags, values = split_flags(arguments.flags, ("out", "resume"))
    overwrite = any(word.lstrip("-") == "overwrite" for word in flags)
    flags = [word for word in flags if word.lstrip("-") != "overwrite"]
    _, own = split_flags(flags, ("save_every",))
    if not own:
        flags.append(f"--save_every={SAVE_SECONDS}")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    folder = values.get("out") or values.get("resume")
    if not folder:
        folder = f"runs/{Path(arguments.script).stem}/{now}"
    elif values.get("resume", folder) != folder:
        raise FolderError(
            f"expected one folder, got --out={folder} and --resume="
            f"{values['resume']}; pass --resume alone"
        )
    return Plan(
        arguments.ranks,
        arguments.spares,
        arguments.attempts,
        arguments.mpirun,
        arguments.script,
        flags,
        Path(folder),
        "resume" in values,
        overwrite,
    )
