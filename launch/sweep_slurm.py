"""The missing cells of a sweep in; the command that submits them to Slurm out."""

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from dml.types import BadInput

TASK = "SLURM_ARRAY_TASK_ID"


def submission(argv: Sequence[str], missing: Sequence[int], cores: int) -> list[str]:
    """Return the sbatch of an array with a task a cell, which has so many cores."""
    own = argv.index("--") if "--" in argv else len(argv)
    again = [
        argument
        for place, argument in enumerate(argv)
        if place > own or argument.split("=")[0] not in ("--slurm", "--dry_run")
    ]
    return [
        *("sbatch", f"--array={ranges(missing)}"),
        *("--ntasks=1", f"--cpus-per-task={cores}"),
        *(str(Path(argv[0]).with_name("slurm.sbatch")), *again),
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers as Slurm reads them: 0-4,7."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    found = ([number for _, number in run] for _, run in runs)
    return ",".join(f"{a[0]}-{a[-1]}" if len(a) > 1 else f"{a[0]}" for a in found)


def wanted(only: int | None, count: int) -> Sequence[int]:
    """Return the cells to run: one that is asked for, a task's own, or all."""
    if only is None and os.environ.get(TASK, "").isdecimal():
        only = int(os.environ[TASK])
    if only is None:
        return range(count)
    if only >= count:
        raise BadInput(f"expected --only below {count}, got {only}; correct it")
    return [only]
