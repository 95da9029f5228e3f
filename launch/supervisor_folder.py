"""The run folder of a supervised run: its newest checkpoint, rows and summary.

The names are those of dml.runs.states (deep networks: checkpoints/step-N) and of
dml.runs.checkpoints (GloVe: checkpoint/).
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

STEPS, EPOCHS = "checkpoints", "checkpoint"  # folders of the checkpoints of a run
STEP_FOLDER = re.compile(r"step-(\d+)(\.replaced)?")
MEMORY = Path("/dev/shm")
MEMORY_PREFIX = "dml-checkpoints-"  # of folders in MEMORY


class FolderError(Exception):
    """A run folder that cannot be used; the message is one line for the user."""


class Checkpoint(NamedTuple):
    """A complete checkpoint.

    unit: "step" or "epoch".
    number: number of steps or epochs.
    written: time of its index, in nanoseconds.
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
    for path in (folder / STEPS).glob("step-*"):
        match = STEP_FOLDER.fullmatch(path.name)
        with suppress(OSError):  # no index
            written = (path / "index.json").stat().st_mtime_ns
            if match:
                checkpoints.append(Checkpoint("step", int(match[1]), written))
    with suppress(OSError, ValueError, KeyError):
        index = folder / EPOCHS / "checkpoint.json"
        epoch = int(json.loads(index.read_text())["epoch"])
        checkpoints.append(Checkpoint("epoch", epoch, index.stat().st_mtime_ns))
    return max(checkpoints, key=lambda checkpoint: checkpoint.number, default=None)


def summary_time(folder: Path) -> int:
    """Return when the summary was written, in nanoseconds; 0 without a summary."""
    with suppress(OSError):
        return (folder / "summary.json").stat().st_mtime_ns
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
        for name in (STEPS, EPOCHS):
            if (folder / name).exists():
                shutil.move(folder / name, place / name)
            else:
                (place / name).mkdir()
            (folder / name).symlink_to(place / name)
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
    """Move checkpoints in memory to the run folder, in the place of their links."""
    for name in (STEPS, EPOCHS):
        link, copy = folder / name, folder / f".{name}"
        if not (link.is_symlink() and is_in_memory(link.readlink())):
            continue
        source = link.readlink()
        try:
            shutil.rmtree(copy, ignore_errors=True)
            if source.is_dir() and any(source.iterdir()):
                # .step-N is incomplete
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".*"))
        except OSError as error:
            raise FolderError(
                f"expected disk space for {link}, got {error}; the checkpoints are in "
                f"{source}: free space, and start again with --resume={folder}"
            ) from error
        link.unlink()
        if copy.exists():
            os.replace(copy, link)
        shutil.rmtree(source, ignore_errors=True)
        with suppress(OSError):  # not empty before the last of the two
            source.parent.rmdir()


def is_in_memory(path: Path) -> bool:
    """Return whether a path is one of `checkpoints_in_memory`."""
    return path.parent.parent == MEMORY and path.parent.name.startswith(MEMORY_PREFIX)
