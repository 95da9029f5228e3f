"""LOG: rows and one summary in; a console, a file or nothing out.

A writer is made by `with`, which closes it however the run ends.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Writer(NamedTuple):
    """Two functions: one takes a row a step, one the summary at the end."""

    row: Callable[[Row], None]
    summary: Callable[[Row], None]


def ignore(row: Row) -> None:
    """Take a row and do nothing."""


@contextmanager
def many(*writers: AbstractContextManager[Writer]) -> Iterator[Writer]:
    """Pass everything on to each of writers; to none of them, do nothing."""
    with ExitStack() as stack:
        entered = [stack.enter_context(writer) for writer in writers]

        def row(row: Row) -> None:
            for writer in entered:
                writer.row(row)

        def summary(summary: Row) -> None:
            for writer in entered:
                writer.summary(summary)

        yield Writer(row, summary)


def first(
    rank: int, *writers: AbstractContextManager[Writer]
) -> AbstractContextManager[Writer]:
    """Return many(*writers) on rank 0, the writing rank, and none elsewhere."""
    return many(*writers) if rank == 0 else many()


@contextmanager
def jsonl(path: Path, append: bool = False) -> Iterator[Writer]:
    """Write each row as a line of JSON, at once: a run that dies keeps its rows."""
    with open(path, "a" if append else "w", buffering=1) as file:

        def row(row: Row) -> None:
            file.write(json.dumps(row) + "\n")

        yield Writer(row, ignore)


@contextmanager
def table(columns: Mapping[str, tuple[int, Callable[[Row], str]]]) -> Iterator[Writer]:
    """Print each row at once, under a header: by title, a width and a cell's text.

    Words stand left, numbers right; of the summary, a line.
    """

    def show(cells: Iterable[str]) -> None:
        widths = (width for width, _ in columns.values())
        padded = (
            cell.ljust(width) if cell[:1].isalpha() else cell.rjust(width)
            for cell, width in zip(cells, widths, strict=True)
        )
        sys.stdout.write("  ".join(padded).rstrip() + "\n")
        sys.stdout.flush()

    def row(row: Row) -> None:
        if not shown:
            show(columns)
            shown.append(True)
        show(text(row) for _, text in columns.values())

    shown: list[bool] = []
    yield Writer(row, ignore)


def loss_of(row: Row) -> str:
    return f"loss {row['loss']:.4f}"


def numbers_of(summary: Row) -> str:
    numbers = {k: v for k, v in summary.items() if isinstance(v, int | float)}
    return "  ".join(f"{k} {v:.6g}" for k, v in numbers.items())


@contextmanager
def console(
    total: int,
    begun: int = 0,
    *,
    unit: str = "step",
    says: Callable[[Row], str] = loss_of,
    ends: Callable[[Row], str] = numbers_of,
) -> Iterator[Writer]:
    """Show what a row says and the time left of total steps; how the summary ends.

    A terminal gets a live bar; a pipe (mpirun is one) at least ten lines along the way.
    """
    from rich import progress
    from rich.console import Console

    screen = Console(highlight=False, soft_wrap=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    live = screen.is_terminal
    with progress.Progress(*columns, console=screen, disable=not live) as bar:
        bar.add_task("", total=total, completed=begun)
        (task,) = bar.tasks

        def row(row: Row) -> None:
            text = says(row)
            bar.update(task.id, advance=1, description=text)
            if not live and task.completed % max(1, total // 10) == 0:
                left = f"{task.time_remaining or 0:.0f} s left"
                screen.print(f"{unit} {task.completed:.0f}/{total}  {text}  {left}")

        def summary(summary: Row) -> None:
            bar.stop()
            screen.print(ends(summary))

        yield Writer(row, summary)
