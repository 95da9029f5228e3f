"""The printed table of the cells of the matrix, and its page."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from dml import extend
from dml.runs.results import Run

Row = dict[str, Any]
KEYS = "method", "problem"
TITLE = (
    "bits: equal letters of a problem mean equal parameters; step loss: mean over the "
    "last step, which is a minibatch or an epoch, before its update"
)
COLUMNS = {
    "problem": (13, lambda row: short(row["problem"])),
    "method": (19, lambda row: short(row["method"])),
    "ranks": (5, lambda row: str(row.get("ranks", ""))),
    "bits": (4, lambda row: row["bits"]),
    "step loss": (9, lambda row: f"{row['loss']:.5f}" if row["fits"] else ""),
    "words": (9, lambda row: f"{row['words_sent']:,}" if row["fits"] else ""),
    "virtual ms": (10, lambda row: milliseconds(row)),
}


def short(name: str) -> str:
    """Return a name with NAME for each FILE.py:NAME."""
    return " ".join(map(extend.short_name, name.split()))


def milliseconds(row: Row) -> str:
    seconds = row.get("virtual_seconds")
    return "" if seconds is None else f"{1e3 * seconds:.3f}"


def add_letters(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows with a label; equal labels mean bit-identical parameters.

    The labels of a problem are A to Z, then A1 to Z1, A2, …
    """
    letters: dict[tuple[str, str], str] = {}
    for row in rows:
        if not row["fits"]:
            yield row | {"bits": "-"}
            continue
        key = row["problem"], row["sha256"]
        used = [key for key in letters if key[0] == row["problem"]]
        letters.setdefault(key, label(len(used)))
        yield row | {"bits": letters[key]}


def label(number: int) -> str:
    """Return a letter, with a number after the first 26."""
    cycle, letter = divmod(number, len(ascii_uppercase))
    return f"{ascii_uppercase[letter]}{cycle or ''}"


def summary(rows: list[Row]) -> Row:
    """Return the numbers of cells."""
    fit = [row for row in rows if row["fits"]]
    bits = {(row["problem"], row["bits"]) for row in fit}
    return {
        "cells": len(rows),
        "cells_that_fit": len(fit),
        "equal_to_another": len(fit) - len(bits),
    }


def conclude(run: Run) -> str:
    """Return the numbers of trained and of equal cells."""
    summary = run.summary
    return (
        f"{summary['cells_that_fit']} of {summary['cells']} cells train; "
        f"{summary['equal_to_another']} of them are bit-identical to an earlier cell."
    )


def write(path: Path, rows: list[Row]) -> None:
    """Write the matrix as a page of two tables."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["problem"], row["method"]): row for row in rows}
    bits = [[cells[p, m]["bits"] for m in methods] for p in problems]
    lines = [HEAD, *markdown(["problem", *methods], problems, bits), "", EMPTY]
    lines += [*markdown(["reason", *KEYS], *reasons(rows)), "", COSTS]
    for field, unit in (("words_sent", "Words"), ("virtual_seconds", "Virtual ms")):
        texts = [[cost(cells[p, m], field) for m in methods] for p in problems]
        lines += ["", f"{unit}:", "", *markdown(["problem", *methods], problems, texts)]
    path.write_text("\n".join(lines) + "\n")


def reasons(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the reasons of empty cells, and the methods and problems of each."""
    empty: dict[str, list[Row]] = {}
    for row in rows:
        if not row["fits"]:
            empty.setdefault(row["reason"].partition(";")[0], []).append(row)
    texts = [
        [", ".join(dict.fromkeys(row[key] for row in group)) for key in KEYS]
        for group in empty.values()
    ]
    return list(empty), texts


def cost(row: Row, field: str) -> str:
    if not row["fits"] or row.get(field) is None:
        return "-"
    value = row[field]
    return f"{value:,}" if isinstance(value, int) else f"{1e3 * value:.3f}"


def markdown(head: list[str], names: list[str], texts: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head)]
    lines += [[name, *row] for name, row in zip(names, texts, strict=True)]
    return [f"| {' | '.join(line)} |" for line in lines]


HEAD = """# Every strategy on every problem

Written by `python experiments/matrix.py`. Each cell trains the same minibatches. In a
row, cells with equal letters have bit-identical trained parameters; `-` marks a problem
that the method cannot train.
"""
EMPTY = """Cells without a letter:
"""
COSTS = """Costs of these updates, of all ranks together: words (4-byte buffer
elements) sent, and virtual milliseconds of messages on the default network. XLA sends
what `mesh`, `hybrid` and `sharded` exchange; these words are not counted here."""
