"""The files of an elastic run, written by the rank that is worker 0."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dml.runs import results
from dml.runs.writers import Row, Writer
from dml.types import Comm
from dml.wire.recovery import Members
from dml.wire.recovery.members import Recovery


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
        self.before: Row | None = None  # the last row, which nobody may have written
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
            metrics = self.path / "metrics.jsonl"
            if append and metrics.exists():
                rows = results.read_rows(metrics)
                text = metrics.read_bytes()
                metrics.write_bytes(text[: text.rfind(b"\n") + 1])
                self.written = max((row["step"] for row in rows), default=0)
            self.writer = self.stack.enter_context(self.open_writer(append))
        return self


@contextmanager
def following(writer: FollowingWriter) -> Iterator[Writer]:
    """Yield the functions of a FollowingWriter; close it at the end."""
    with writer.stack:
        yield Writer(writer.row, lambda summary: writer.open().writer.summary(summary))


def write_recoveries(
    path: Path, recoveries: Sequence[Recovery], comm: Comm, number: int
) -> None:
    """Append recoveries to a file, after the commit of the next update.

    Times are those of time.time(), or virtual ones.

    Args:
      path: File of the recoveries.
      recoveries: Recoveries since the last committed update.
      comm: Workers.
      number: Number of updates.
    """
    now = comm.Wtime()
    offset = 0.0 if comm.platform.virtual else time.time() - now
    path.parent.mkdir(parents=True, exist_ok=True)  # a death before the first row
    with path.open("a") as file:
        for each in recoveries:
            row = {
                "step": number,
                "deaths": each.deaths,
                "workers": each.workers,
                "noticed": each.time + offset,
                "formed": each.time + each.seconds + offset,
                "committed": now + offset,
            }
            file.write(json.dumps(row) + "\n")
