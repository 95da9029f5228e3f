"""Writers of CSV tables and of TensorBoard's event files."""

import csv
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dml.runs.rows import is_repeated, numbers
from dml.runs.writers import Row, Writer, ignore

FLUSH_INTERVAL = 10.0  # seconds between writes to the file of events


@contextmanager
def table(path: Path, append: bool = False) -> Iterator[Writer]:
    """Write each row at once; rewrite the file if a row has a new column.

    The first row of a resumed run replaces the rows that it repeats.
    """
    columns = read(path)[0] if append and path.exists() else []
    with open(path, "a" if append else "w", newline="", buffering=1) as file:
        to_cut = append

        def row(row: Row) -> None:
            nonlocal to_cut
            new_columns = [name for name in row if name not in columns]
            if new_columns or to_cut:
                _, earlier_rows = read(path)
                if to_cut:
                    earlier_rows = [r for r in earlier_rows if not is_repeated(r, row)]
                to_cut = False
                columns.extend(new_columns)
                file.seek(0)
                file.truncate()
                csv.writer(file).writerow(columns)
                csv.DictWriter(file, columns).writerows(earlier_rows)
            csv.writer(file).writerow([row.get(name, "") for name in columns])

        yield Writer(row, ignore)


def read(path: Path) -> tuple[list[str], list[Row]]:
    """Return a table's columns and rows; all values are text."""
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        rows: list[Row] = list(reader)
        return list(reader.fieldnames or []), rows


@contextmanager
def tensorboard(path: Path) -> Iterator[Writer]:
    """Write the numbers of each row, and of the summary at the end, as an event."""
    # not tensorboardX's FileWriter, whose thread takes 100 µs per row
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event

    file = EventsWriter(str(path / "events"))
    last_step = 0
    last_flush = time.monotonic()

    def add(values: Row, step: int, prefix: str = "") -> None:
        event = Event(wall_time=time.time(), step=step)
        for name, value in numbers(values).items():
            event.summary.value.add(tag=prefix + name, simple_value=value)
        file.write_event(event)

    def row(row: Row) -> None:
        nonlocal last_step, last_flush
        last_step = row.get("step", last_step + 1)
        add(row, last_step)
        if time.monotonic() - last_flush > FLUSH_INTERVAL:
            file.flush()
            last_flush = time.monotonic()

    def summary(summary: Row) -> None:
        add(summary, last_step, "summary/")

    try:
        yield Writer(row, summary)
    finally:
        file.close()
