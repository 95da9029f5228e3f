"""The files of an elastic run, written by the rank that is worker 0."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags

from dml.runs import results
from dml.runs.saves import Saves
from dml.runs.writers import Row, Writer
from dml.strategies.elastic import Elastic
from dml.types import Step
from dml.wire.recovery import Members
from studies.deep import flags as deep_flags
from studies.deep.preparation import save_checkpoint

RECOVERIES = "recoveries.jsonl"  # file in the run folder


class FollowingWriter:
    """Writes rows on the rank that is worker 0, after the rows of its predecessor.

    Args:
      members: Workers and spares.
      open_writer: (whether to append) -> context of the writers of a run.
      path: Run folder.
      append: Whether the rows of a resumed run are kept.
    """

    def __init__(
        self,
        members: Members,
        open_writer: Callable[[bool], Any],
        path: Path,
        append: bool,
    ):
        self.members, self.open_writer, self.path = members, open_writer, path
        self.append = append
        self.stack, self.writer = ExitStack(), None
        self.before: Row | None = None  # the last row, which may not be written yet
        self.written = 0

    def row(self, row: Row) -> None:
        if self.members.comm.rank == 0:
            for each in (self.before, row):
                if each is not None and each["step"] > self.open().written:
                    self.writer.row(each)
                    self.written = each["step"]
        self.before = row

    def open(self) -> "FollowingWriter":
        """Open the files of the run, once; called on worker 0."""
        if self.writer is None:
            append = self.append or bool(self.members.recoveries)
            metrics = self.path / results.ROWS
            if append and metrics.exists():
                rows = results.read_rows(metrics)
                self.written = max((row["step"] for row in rows), default=0)
            self.writer = self.stack.enter_context(self.open_writer(append))
        return self


@contextmanager
def following(writer: FollowingWriter) -> Iterator[Writer]:
    """Yield the functions of a FollowingWriter; close it at the end."""
    with writer.stack:
        if writer.members.comm is not None and writer.members.comm.rank == 0:
            writer.open()  # before the first checkpoint
        yield Writer(writer.row, lambda summary: writer.open().writer.summary(summary))


def write_recoveries(path: Path, members: Members, known: int, number: int) -> None:
    """Append new recoveries to a file, after the commit of the next update.

    Times are those of time.time(), or virtual ones.

    Args:
      path: File of the recoveries.
      members: Workers and spares.
      known: Number of recoveries before the last update.
      number: Number of updates.
    """
    comm = members.comm
    now = comm.Wtime()
    offset = 0.0 if comm.platform.virtual else time.time() - now
    path.parent.mkdir(parents=True, exist_ok=True)  # a death before the first row
    with path.open("a") as file:
        for recovery in members.recoveries[known:]:
            row = {
                "step": number,
                "deaths": recovery.deaths,
                "workers": recovery.workers,
                "noticed": recovery.time + offset,
                "formed": recovery.time + recovery.seconds + offset,
                "committed": now + offset,
            }
            file.write(json.dumps(row) + "\n")


def saved_on_worker_0(
    run: Elastic, steps: Iterator[Step], values: flags.FlagValues, path: Path
) -> Iterator[Step]:
    """Yield the steps; worker 0 writes recoveries and checkpoints."""
    members, known = run.members, 0
    folder, rules = path / "checkpoints", deep_flags.rules(values)
    share, threaded = values.save_overhead / 100, not members.world.platform.virtual
    with Saves(values.save_every, share, threaded=threaded) as saves:
        for step in saves.timed(steps):
            first = members.comm.rank == 0
            if first and len(members.recoveries) > known:
                write_recoveries(path / RECOVERIES, members, known, step.number)
            known = len(members.recoveries)
            if first and (saves.due() or members.stopped) and math.isfinite(step.loss):
                save = partial(save_checkpoint, members.own, folder, rules, {})
                saves.save(partial(save, step))
            yield step
