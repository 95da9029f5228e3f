"""Write rows and a summary to the console or to a file.

Writers are context managers, closed at the end of a run.
"""

import string
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Writer(NamedTuple):
    """Functions that write the results of a run."""

    row: Callable[[Row], None]  # called with the row of each step
    summary: Callable[[Row], None]  # called at the end


def ignore(row: Row) -> None:
    """Do nothing with a row."""


@contextmanager
def tee(*writers: AbstractContextManager[Writer]) -> Iterator[Writer]:
    """Write every row and the summary to each of the writers."""
    with ExitStack() as stack:
        entered = [stack.enter_context(writer) for writer in writers]

        def row(row: Row) -> None:
            for writer in entered:
                writer.row(row)

        def summary(summary: Row) -> None:
            for writer in entered:
                writer.summary(summary)

        yield Writer(row, summary)


def rank_0_writer(
    rank: int, *writers: AbstractContextManager[Writer]
) -> AbstractContextManager[Writer]:
    """Return tee(*writers) on rank 0, and a writer that ignores rows on other ranks."""
    return tee(*writers) if rank == 0 else tee()


@contextmanager
def collector(finish: Callable[[list[Row], Row], None]) -> Iterator[Writer]:
    """Collect the rows; call finish(rows, summary) at the end."""
    rows: list[Row] = []
    yield Writer(rows.append, lambda summary: finish(rows, summary))


PAIRS = 3  # largest number of (name, value) pairs per line of a summary
WIDTH = 80  # characters of a line
GAP = "  "  # between the columns of a table
UNCOUNTED = (
    "No words were counted: the ranks shared memory, or called MPI's own all-reduce."
)


# title of a column -> width, and template or function of the row
Columns = Mapping[str, tuple[int, str | Callable[[Row], str]]]


class Cells(string.Formatter):
    """A formatter that writes a missing number as a dash."""

    def format_field(self, value: Any, spec: str) -> str:
        return "-" if value is None else super().format_field(value, spec)


def cell(row: Row, text: str | Callable[[Row], str]) -> str:
    """Return the text of a cell: a template such as "{loss:.3f}", or a function."""
    return Cells().vformat(text, (), row) if isinstance(text, str) else text(row)


def line(row: Row, *templates: str) -> str:
    """Return formatted templates in a line; omit those with a missing field."""
    parts = []
    for template in templates:
        fields = [field for _, field, _, _ in Cells().parse(template) if field]
        if all(row.get(field) is not None for field in fields):
            parts.append(cell(row, template))
    return "  ".join(parts)


def scaled_cell(key: str, factor: float, form: str) -> Callable[[Row], str]:
    """Return a function: row -> text of factor * row[key]; None is a dash.

    Args:
      key: Name of a column.
      factor: Factor of its numbers.
      form: Format specification, such as ".3f".
    """

    def text(row: Row) -> str:
        return "-" if row[key] is None else format(factor * row[key], form)

    return text


def fitting(columns: Columns) -> Columns:
    """Return the first columns, which fit in a line of WIDTH characters."""
    widths = accumulate(width + len(GAP) for width, _ in columns.values())
    count = sum(width - len(GAP) <= WIDTH for width in widths)
    return dict([*columns.items()][:count])


def printer(
    columns: Columns, title: str = "", wide: bool = False
) -> Callable[[Row], None]:
    """Return a function that prints a row; before the first row it prints a header.

    Cells that start with a letter are aligned to the left, other cells to the right.

    Args:
      columns: Columns, the most important first.
      title: Template, filled in from the first row and printed above the header.
      wide: Whether to print the columns that do not fit in a line of WIDTH characters.
    """
    printed = columns if wide else fitting(columns)
    omitted = len(columns) - len(printed)

    def show(cells: Iterable[str]) -> None:
        widths = (width for width, _ in printed.values())
        padded = (
            cell.ljust(width) if cell[:1].isalpha() else cell.rjust(width)
            for cell, width in zip(cells, widths, strict=True)
        )
        sys.stdout.write(GAP.join(padded).rstrip() + "\n")
        sys.stdout.flush()

    def row(row: Row) -> None:
        if not shown:
            if title:
                texts = cell(row, title).splitlines()
                lines = [textwrap.fill(text, WIDTH) for text in texts]
                sys.stdout.write("\n".join(["", *lines, ""]))
            if omitted:
                plural = "s" if omitted > 1 else ""
                sys.stdout.write(f"({omitted} more column{plural}: --wide)\n")
            show(printed)
            shown.append(True)
        show(cell(row, text) for _, text in printed.values())

    shown: list[bool] = []
    return row


@contextmanager
def table(columns: Columns, wide: bool = False, title: str = "") -> Iterator[Writer]:
    """Print the rows as one table; the summary is not printed."""
    yield Writer(printer(columns, title, wide), ignore)


@contextmanager
def tables(
    columns_by_table: Mapping[str, Columns],
    titles: Mapping[str, str],
    wide: bool = False,
    key: str = "table",
) -> Iterator[Writer]:
    """Print each row in the table that row[key] names; a table may have a title."""
    printers = {
        name: printer(columns, titles.get(name, ""), wide)
        for name, columns in columns_by_table.items()
    }
    yield Writer(lambda row: printers[row[key]](row), ignore)


def loss_text(row: Row) -> str:
    """Return the loss of a row as text."""
    return f"loss {row['loss']:.4f}"


def summary_table(summary: Row) -> str:
    """Return the numbers of a summary, up to PAIRS in a line of WIDTH characters."""
    texts = [
        (name.replace("_", " "), f"{value:.6g}")
        for name, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if name != "words_sent" or value  # see `training_sentence`
    ]
    lines: list[str] = []
    for pairs in range(PAIRS, 0, -1):
        columns = [padded_pairs(texts[k::pairs]) for k in range(pairs)]
        lines = ["   ".join(filter(None, row)) for row in zip_longest(*columns)]
        if max(map(len, lines), default=0) <= WIDTH:
            break
    return "\n".join(lines)


def padded_pairs(texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return the pairs of a column, with names and values of equal widths."""
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [f"{name:{widths[0]}}  {value:>{widths[1]}}" for name, value in texts]


def training_sentence(summary: Row, virtual: bool = False, ranks: int = 1) -> str:
    """Return the main results of a training in one sentence.

    Args:
      summary: Summary of the training.
      virtual: Whether its seconds are virtual.
      ranks: Number of ranks.
    """
    unit = "virtual seconds" if virtual else "s"
    start = line(summary, f"Trained {{steps:,}} updates in {{seconds:.3g}} {unit}")
    results = (
        "loss {loss:.4g}",
        "accuracy {accuracy:.1%}",
        "perplexity {perplexity:.4g}",
    )
    texts = filter(None, (line(summary, template) for template in results))
    text = f"{start}: {', '.join(texts)}." if start else "Finished."
    if ranks > 1 and summary.get("words_sent") == 0:
        text += f" {UNCOUNTED}"
    return text


@contextmanager
def console(
    total: int,
    done: int = 0,
    *,
    unit: str = "step",
    row_text: Callable[[Row], str] = loss_text,
    summary_text: Callable[[Row], str] = summary_table,
) -> Iterator[Writer]:
    """Print progress, the time left and the summary.

    On a terminal the progress is a bar, otherwise at least ten lines.

    Args:
      total: Number of steps.
      done: Number of steps before a resume.
      unit: Name of a step.
      row_text: row -> text.
      summary_text: summary -> text.
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
        bar.add_task("", total=total, completed=done)
        (task,) = bar.tasks

        def row(row: Row) -> None:
            text = row_text(row)
            bar.update(task.id, advance=1, description=text)
            if not live and task.completed % max(1, total // 10) == 0:
                seconds = task.time_remaining  # None: unknown
                left = "" if seconds is None else f"  {seconds:.0f} s left"
                screen.print(f"{unit} {task.completed:.0f}/{total}  {text}{left}")

        def summary(summary: Row) -> None:
            bar.stop()
            screen.print(summary_text(summary))

        yield Writer(row, summary)
