"""The run folder of a supervised run: its newest checkpoint, rows and summary.

The names are those of dml.runs.checkpoints.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

CHECKPOINTS = "checkpoints"  # folder of the checkpoints of a run
NAME = re.compile(r"(step|epoch)-(\d+)\.npz")
MEMORY = Path("/dev/shm")
MEMORY_PREFIX = "dml-checkpoints-"  # of folders in MEMORY


class FolderError(Exception):
    """A run folder that cannot be used; the message is one line for the user."""


class Checkpoint(NamedTuple):
    """A complete checkpoint.

    unit: "step" or "epoch".
    number: number of steps or epochs.
    written: time of its file, in nanoseconds.
    """

    unit: str
    number: int
    written: int

    @property
    def place(self) -> str:
        return f"{self.unit} {self.number}"


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint of a run; None if there is none."""
    checkpoints = []
    for path in (folder / CHECKPOINTS).glob("*.npz"):
        match = NAME.fullmatch(path.name)
        with suppress(OSError):  # replaced by a newer one
            if match:
                written = path.stat().st_mtime_ns
                checkpoints.append(Checkpoint(match[1], int(match[2]), written))
    return max(checkpoints, key=lambda checkpoint: checkpoint.number, default=None)


def summary_time(folder: Path) -> int:
    """Return when the summary of a run that is done was written, in nanoseconds.

    It is 0 without a summary, and for a run that was interrupted or has failed.
    """
    path = folder / "summary.json"
    with suppress(OSError, ValueError, AttributeError):
        if json.loads(path.read_text()).get("status", "done") == "done":
            return path.stat().st_mtime_ns
    return 0


@contextmanager
def checkpoints_in_memory(folder: Path) -> Iterator[None]:
    """Keep the checkpoints of a run in memory; move them to the run folder at the end.

    In the run folder a link takes the place of the folder of checkpoints. If the
    supervisor is killed, the link remains valid until the host is restarted.
    """
    if not MEMORY.is_dir():
        raise FolderError(f"expected {MEMORY}, got none; start without --memory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=MEMORY_PREFIX, dir=MEMORY))
        link = folder / CHECKPOINTS
        if link.exists():
            shutil.move(link, place / CHECKPOINTS)
        else:
            (place / CHECKPOINTS).mkdir()
        link.symlink_to(place / CHECKPOINTS)
    except (OSError, shutil.Error) as error:
        raise FolderError(
            f"expected space for checkpoints in {MEMORY} and in {folder}, got {error}; "
            "start without --memory"
        ) from error
    try:
        yield
    finally:
        move_to_disk(folder)


def move_to_disk(folder: Path) -> None:
    """Move checkpoints in memory to the run folder, in the place of their link."""
    link, copy = folder / CHECKPOINTS, folder / f".{CHECKPOINTS}"
    if not (link.is_symlink() and is_in_memory(link.readlink())):
        return
    source = link.readlink()
    try:
        shutil.rmtree(copy, ignore_errors=True)
        if source.is_dir() and any(source.iterdir()):
            # a file .step-N is incomplete
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".*"))
    except OSError as error:
        raise FolderError(
            f"expected disk space for {link}, got {error}; the checkpoints are in "
            f"{source}: free space, and start again with --resume={folder}"
        ) from error
    link.unlink()
    if copy.exists():
        os.replace(copy, link)
    shutil.rmtree(source.parent, ignore_errors=True)


def is_in_memory(path: Path) -> bool:
    """Return whether a path is one of `checkpoints_in_memory`."""
    return path.parent.parent == MEMORY and path.parent.name.startswith(MEMORY_PREFIX)
