"""Rows of a run as lines of JSON, and the rows that a resumed run repeats."""

import itertools
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dml.runs import results
from dml.runs.writers import Row, Writer, ignore
from dml.types import BadInput


@contextmanager
def jsonl(path: Path, append: bool = False) -> Iterator[Writer]:
    """Write each row at once as a line of JSON.

    A resumed run repeats the rows after its checkpoint: its first row replaces them,
    and a last row that is incomplete because the run was killed.
    """
    earlier = rows_by_end(path) if append and path.exists() else {}
    with open(path, "a" if append else "w", buffering=1) as file:
        to_cut = append

        def row(row: Row) -> None:
            nonlocal to_cut
            if to_cut:
                to_cut = False
                kept = itertools.takewhile(
                    lambda end: not is_repeated(earlier[end], row), earlier
                )
                file.truncate(max(kept, default=0))
            file.write(json.dumps(row) + "\n")

        yield Writer(row, ignore)


def numbers(row: Row) -> dict[str, int | float]:
    """Return the numbers of a row or of a summary, except its step."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and name != "step"
    }


def rows_by_end(path: Path) -> dict[int, Row]:
    """Return the complete rows of a file by the position of their ends.

    Raises BadInput for a row that is not an object, or whose number is not a number.
    """
    rows: dict[int, Row] = {}
    end = 0
    with open(path, "rb") as file:
        for count, line in enumerate(file, 1):
            end += len(line)
            if line.endswith(b"\n"):
                rows[end] = results.check_object(results.parse_json(line, path), path)
                check_numbers(rows[end], f"line {count} of {path}")
    return rows


def check_numbers(row: Row, place: str) -> None:
    """Raise BadInput if the epoch or step of a row is not a whole number."""
    for unit in ("epoch", "step"):
        if not isinstance(row.get(unit, 0) or 0, int):
            raise BadInput(
                f"expected a whole number as {unit} in {place}, got {row[unit]!r}; "
                "correct the line, or delete it and the lines after it"
            )


def is_repeated(earlier: Row, first: Row) -> bool:
    """Return whether a resumed run, by its first row, repeats an earlier row."""
    unit = "epoch" if "epoch" in first else "step"
    try:
        number = int(earlier.get(unit) or 0)
    except ValueError as error:  # of a CSV table
        raise BadInput(
            f"expected a whole number as {unit} in earlier rows, got {earlier[unit]!r};"
            " correct the file metrics.csv of the run, or delete it"
        ) from error
    return number >= first.get(unit, math.inf)
