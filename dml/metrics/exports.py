"""LOG: rows in; a table of comma-separated values, or TensorBoard's event files, out.

Both are writers, as those of `writers` are.
"""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dml.metrics.writers import Row, Writer, ignore


@contextmanager
def table(path: Path, append: bool = False) -> Iterator[Writer]:
    """Write each row at once; one with a new column writes the file anew, wider.

    A file to append to gives its columns.
    """
    columns, rows = read(path) if append and path.exists() else ([], [])
    file = open(path, "w", newline="", buffering=1)  # noqa: SIM115, closed below

    def whole() -> None:
        file.seek(0)
        file.truncate()
        csv.writer(file).writerow(columns)
        csv.DictWriter(file, columns).writerows(rows)

    def row(row: Row) -> None:
        fresh = [name for name in row if name not in columns]
        rows.append(row)
        if fresh:
            columns.extend(fresh)
            whole()
        else:
            csv.writer(file).writerow([row.get(name, "") for name in columns])

    try:
        if rows:
            whole()
        yield Writer(row, ignore)
    finally:
        file.close()


def read(path: Path) -> tuple[list[str], list[Row]]:
    """Return a table's columns and rows, all text."""
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        rows: list[Row] = list(reader)
        return list(reader.fieldnames or []), rows


@contextmanager
def tensorboard(path: Path) -> Iterator[Writer]:
    """Write each row's numbers as one event, at its step; the summary's at the last."""
    from tensorboardX import FileWriter
    from tensorboardX.proto.summary_pb2 import Summary

    file, last = FileWriter(str(path)), 0

    def add(numbers: Row, step: int) -> None:
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in numbers.items()
            if isinstance(value, int | float)
        ]
        file.add_summary(Summary(value=values), step)

    def row(row: Row) -> None:
        nonlocal last
        last = row.get("step", last + 1)
        add({name: value for name, value in row.items() if name != "step"}, last)

    def summary(summary: Row) -> None:
        add({f"summary/{name}": value for name, value in summary.items()}, last)

    try:
        yield Writer(row, summary)
    finally:
        file.close()
