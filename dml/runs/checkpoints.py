"""Checkpoints of a run: numbered archives in a folder, the newest first.

    checkpoints/step-400.npz        the newest
    checkpoints/step-300.npz        read if a bit of the newest has changed

An archive has the rules of the run, the flags and sizes that a resumed run must share.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.runs import archive
from dml.runs.archive import Broken
from dml.runs.records import json_round_trip
from dml.types import BadInput

FOLDER = "checkpoints"  # in a run folder
NAME = re.compile(r"(step|epoch)-(\d+)\.npz")


class Checkpoint(NamedTuple):
    """A state of a run.

    Attributes:
      number: Number of the step or epoch.
      arrays: Arrays of the state by name.
      description: Further values of the state.
    """

    number: int
    arrays: dict[str, np.ndarray]
    description: Mapping[str, Any]


def write(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    rules: Mapping[str, Any],
    keep: int = 2,
    **description: Any,
) -> None:
    """Write a checkpoint; a complete one exists at every moment; rank 0 only.

    A state with NaN or infinity is not saved. Checkpoints of later steps are deleted:
    they are from before a resume at an earlier step.

    Args:
      path: File, named step-N.npz or epoch-N.npz.
      arrays: Arrays of the state by name.
      rules: Flags and sizes on which the result of the run depends.
      keep: Number of checkpoints to keep.
      **description: Further values of the state.
    """
    if not all(map(finite, arrays.values())):
        return
    description |= {"number": number(path), "rules": dict(rules)}
    archive.write(path, arrays, description)
    for left in path.parent.glob(".*.npz.*"):  # of a process that was killed
        with suppress(OSError):
            left.unlink()
    saved = paths(path.parent)
    earlier = [other for other in saved if number(other) < number(path)]
    for other in set(saved) - {path, *earlier[: keep - 1]}:
        with suppress(OSError):
            other.unlink()


def load(
    folder: Path,
    rules: Mapping[str, Any],
    shapes: Mapping[str, str],
    warn: Callable[[str], object],
    free: Collection[str] = (),
) -> Checkpoint:
    """Return the last complete checkpoint of a folder.

    Raises BadInput if there is none, or if rules or arrays differ from the saved ones.

    Args:
      folder: Folder of all checkpoints of the run.
      rules: Flags and sizes of the run that is resumed.
      shapes: Dtype and shape of each array.
      warn: Called with a message about broken checkpoints, if there are any.
      free: Rules that may differ.
    """
    problems: list[str] = []
    for path in paths(folder):
        try:
            check(path, archive.read_index(path), rules, shapes, free)
            index, arrays = archive.read(path)
        except Broken as broken:
            problems.append(f"{path.name} {broken}")
            continue
        if problems:
            warn(f"{'; '.join(problems)}; resuming from {path.name}")
        return Checkpoint(number(path), arrays, index.description)
    earlier = [*folder.glob("step-*/"), *folder.parent.glob("checkpoint/*.json")]
    if earlier and not problems:
        problems = ["those of an earlier version of dml, which must resume them"]
    raise BadInput(
        f"expected a complete checkpoint in {folder}, got "
        f"{'; '.join(problems) or 'none'}; pass the folder of a run that saved one"
    )


def check(
    path: Path,
    index: archive.Index,
    rules: Mapping[str, Any],
    shapes: Mapping[str, str],
    free: Collection[str],
) -> None:
    """Raise BadInput if rules or shapes differ from those of a checkpoint."""
    saved_rules = index.description.get("rules")
    if not isinstance(saved_rules, dict):
        raise Broken("has no rules")
    if index.description.get("number") != number(path):
        raise Broken("is of another number")
    for saved, current in (
        (saved_rules, json_round_trip(rules)),
        (index.arrays, dict(shapes)),
    ):
        for name in dict.fromkeys([*current, *saved]):
            if saved.get(name) != current.get(name) and name not in free:
                raise BadInput(
                    f"expected {name}={saved.get(name)} as in {path}, got "
                    f"{name}={current.get(name)}; pass the flags of that run, "
                    "or the folder of another run"
                )


def shapes(folder: Path) -> dict[str, str]:
    """Return the dtypes and shapes of the last checkpoint; empty if there is none."""
    for path in paths(folder):
        with suppress(Broken):
            return archive.read_index(path).arrays
    return {}


def paths(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first."""
    named = [path for path in folder.glob("*.npz") if NAME.fullmatch(path.name)]
    return sorted(named, key=number, reverse=True)


def number(path: Path) -> int:
    """Return the number of the step or epoch of a checkpoint."""
    match = NAME.fullmatch(path.name)
    assert match, path
    return int(match[2])


def finite(array: np.ndarray) -> bool:
    """Return whether no element is NaN or infinite; also of bfloat16."""
    return array.dtype.kind not in "fcV" or bool(np.isfinite(array).all())
