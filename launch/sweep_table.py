"""The progress of a sweep: an updated table on a terminal, otherwise lines."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from sweep_runs import Ended, Job, Running, SweepState, tail

UPDATE_INTERVAL = 12  # polls between updates: four updates per second
MAX_ROWS = 20  # running jobs in the table
WIDTH = 240  # characters of the final table; no cell is wrapped


@contextmanager
def table(
    earlier: int, cores: int, screen: Console | None = None
) -> Iterator[Callable[[SweepState], None]]:
    """Yield a function that displays a state.

    Args:
      earlier: Number of runs done by earlier sweeps.
      cores: Number of cores of the sweep.
      screen: Output console; default stderr.
    """
    screen = screen or Console(highlight=False, soft_wrap=True, stderr=True)
    polls = shown = 0
    with Live(console=screen, auto_refresh=False, transient=True) as live:

        def show(state: SweepState) -> None:
            nonlocal polls, shown
            for ended in state.ended[shown:]:
                shown += 1
                if ended.error or not screen.is_terminal:
                    screen.print(line(ended, earlier + shown, state, cores, earlier))
            if screen.is_terminal and polls % UPDATE_INTERVAL == 0:
                live.update(picture(state, earlier, cores), refresh=True)
            polls += 1

        yield show


def print_table(rows: Iterable[Mapping[str, str]]) -> None:
    """Print rows as a table with a header of their keys."""
    rows = list(rows)
    text_table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        text_table.add_row(*map(Text, row.values()))
    Console(highlight=False, width=WIDTH, soft_wrap=True).print(text_table)


def line(
    ended: Ended, number: int, state: SweepState, cores: int, earlier: int
) -> Text:
    """Return the line of a finished run, with the estimated time left.

    Args:
      ended: The run.
      number: Number of finished runs.
      state: Jobs by state.
      cores: Number of cores of the sweep.
      earlier: Number of runs done by earlier sweeps.
    """
    last_line = ended.error.split("\n")[-1]
    result = f"FAILED, code {ended.code}: {last_line}" if ended.error else "done"
    total = earlier + len(state.ended) + len(state.running) + len(state.waiting)
    return Text(
        f"{number}/{total}  {ended.job.label}  {ended.seconds:.1f} s  {result}"
        f"{time_left(state, cores)}",
        style="red" if ended.error else "",
    )


def picture(state: SweepState, earlier: int, cores: int) -> Group:
    """Return the number of runs by state, and a table of the running jobs."""
    failed = sum(bool(ended.error) for ended in state.ended)
    head = (
        f"{earlier + len(state.ended) - failed} done  {failed} failed  "
        f"{len(state.running)} running  {len(state.waiting)} waiting"
    )
    rows = Table("run", "cores", "seconds", "last line", box=None, pad_edge=False)
    rows.columns[3].no_wrap = True
    rows.columns[3].overflow = "ellipsis"
    for running in state.running[:MAX_ROWS]:
        rows.add_row(*map(Text, cells(running)))
    return Group(Text(head + time_left(state, cores), style="bold"), rows)


def cells(running: Running) -> tuple[str, ...]:
    """Return the cells of a running job."""
    cores = ",".join(map(str, running.cores))
    *_, last_line = ["", *tail(running.job.folder)]
    return running.job.label, cores, f"{running.seconds:.0f}", last_line


def time_left(state: SweepState, cores: int) -> str:
    """Return the estimated time left, by the median time of successful runs."""
    seconds = [ended.seconds for ended in state.ended if not ended.error]
    if not seconds or not (state.running or state.waiting):
        return ""
    median = statistics.median(seconds)
    remaining = [(job, median) for job in state.waiting]
    remaining += [
        (running.job, max(0.0, median - running.seconds)) for running in state.running
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
