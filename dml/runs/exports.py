"""Writers of CSV tables and of TensorBoard's event files."""

import csv
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dml.runs.writers import Row, Writer, ignore

FLUSHED = 10.0  # seconds until TensorBoard sees a row


@contextmanager
def table(path: Path, append: bool = False) -> Iterator[Writer]:
    """Write each row at once; a new column rewrites the file."""
    columns = read(path)[0] if append and path.exists() else []
    with open(path, "a" if append else "w", newline="", buffering=1) as file:

        def row(row: Row) -> None:
            fresh = [name for name in row if name not in columns]
            if fresh:
                _, before = read(path)
                columns.extend(fresh)
                file.seek(0)
                file.truncate()
                csv.writer(file).writerow(columns)
                csv.DictWriter(file, columns).writerows(before)
            csv.writer(file).writerow([row.get(name, "") for name in columns])

        yield Writer(row, ignore)


def read(path: Path) -> tuple[list[str], list[Row]]:
    """Return a table's columns and rows, all text."""
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        rows: list[Row] = list(reader)
        return list(reader.fieldnames or []), rows


@contextmanager
def tensorboard(path: Path) -> Iterator[Writer]:
    """Write each row's numbers as one event, at its step; the summary's at the last."""
    # not tensorboardX's FileWriter: it takes 100 us a row, for another thread
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event

    file, last, flushed = EventsWriter(str(path / "events")), 0, time.monotonic()

    def add(values: Row, step: int, prefix: str = "") -> None:
        event = Event(wall_time=time.time(), step=step)
        for name, value in values.items():
            if isinstance(value, int | float) and name != "step":
                event.summary.value.add(tag=prefix + name, simple_value=value)
        file.write_event(event)

    def row(row: Row) -> None:
        nonlocal last, flushed
        last = row.get("step", last + 1)
        add(row, last)
        if time.monotonic() - flushed > FLUSHED:
            file.flush()
            flushed = time.monotonic()

    def summary(summary: Row) -> None:
        add(summary, last, "summary/")

    try:
        yield Writer(row, summary)
    finally:
        file.close()
