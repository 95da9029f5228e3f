"""The progress of a sweep: an updated table on a terminal, otherwise lines."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from sweep_runs import Ended, Job, Running, State, tail

EVERY = 12  # ticks between updates: four updates per second
ROWS = 20  # largest number of running jobs in the table
WIDE = 240  # width of the final table in characters, so that no cell is wrapped


@contextmanager
def table(
    before: int, cores: int, screen: Console | None = None
) -> Iterator[Callable[[State], None]]:
    """Yield a function that displays a state.

    Args:
      before: Number of runs done by earlier sweeps.
      cores: Number of cores of the sweep.
      screen: Output console; default stderr.
    """
    screen = screen or Console(highlight=False, soft_wrap=True, stderr=True)
    ticks = shown = 0
    with Live(console=screen, auto_refresh=False, transient=True) as live:

        def show(state: State) -> None:
            nonlocal ticks, shown
            for ended in state.ended[shown:]:
                shown += 1
                if ended.says or not screen.is_terminal:
                    screen.print(line(ended, before + shown, state, cores, before))
            if screen.is_terminal and ticks % EVERY == 0:
                live.update(picture(state, before, cores), refresh=True)
            ticks += 1

        yield show


def printed(rows: Iterable[Mapping[str, str]]) -> None:
    """Print rows as a table with a header of their keys."""
    rows = list(rows)
    text_table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        text_table.add_row(*map(Text, row.values()))
    Console(highlight=False, width=WIDE, soft_wrap=True).print(text_table)


def line(ended: Ended, number: int, state: State, cores: int, before: int) -> Text:
    """Return the line of a finished run, with the estimated time left.

    Args:
      ended: The run.
      number: Number of finished runs.
      state: Jobs by state.
      cores: Number of cores of the sweep.
      before: Number of runs done by earlier sweeps.
    """
    last = ended.says.split("\n")[-1]
    result = f"FAILED, code {ended.code}: {last}" if ended.says else "done"
    total = before + len(state.ended) + len(state.running) + len(state.waiting)
    return Text(
        f"{number}/{total}  {ended.job.label}  {ended.seconds:.1f} s  {result}"
        f"{left(state, cores)}",
        style="red" if ended.says else "",
    )


def picture(state: State, before: int, cores: int) -> Group:
    """Return the number of runs by state, and a table of the running jobs."""
    failed = sum(bool(ended.says) for ended in state.ended)
    head = (
        f"{before + len(state.ended) - failed} done  {failed} failed  "
        f"{len(state.running)} running  {len(state.waiting)} waiting"
    )
    rows = Table("run", "cores", "seconds", "last line", box=None, pad_edge=False)
    rows.columns[3].no_wrap = True
    rows.columns[3].overflow = "ellipsis"
    for running in state.running[:ROWS]:
        rows.add_row(*map(Text, cells(running)))
    return Group(Text(head + left(state, cores), style="bold"), rows)


def cells(running: Running) -> tuple[str, ...]:
    """Return the cells of a running job."""
    cores = ",".join(map(str, running.cores))
    *_, last = ["", *tail(running.job.folder)]
    return running.job.label, cores, f"{running.seconds:.0f}", last


def left(state: State, cores: int) -> str:
    """Return the estimated time left, by the median time of successful runs."""
    seconds = [ended.seconds for ended in state.ended if not ended.says]
    if not seconds or not (state.running or state.waiting):
        return ""
    usual = statistics.median(seconds)
    remaining = [(job, usual) for job in state.waiting]
    remaining += [
        (running.job, max(0.0, usual - running.seconds)) for running in state.running
    ]
    total = sum(core_seconds(job, seconds) for job, seconds in remaining)
    return f"  {span(total / cores)} left"


def core_seconds(job: Job, seconds: float) -> float:
    """Return a job's seconds times its number of cores."""
    return job.cores * seconds


def span(seconds: float) -> str:
    """Return a duration as text in a suitable unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
