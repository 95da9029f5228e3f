"""Rows, summary, conclusion and figure of diloco.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import flags

from dml.case import mean, over_seeds
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.task import Task
from studies.diloco.training import Method, pretrain, train

COLUMNS: Columns = {
    "method": (26, "{name}"),
    "loss": (7, "{loss:.4f}"),
    "range": (7, "{range:.4f}"),
    "MB": (9, scaled_cell("bytes_sent", 1e-6, ".3f")),
    "peak KB": (8, scaled_cell("peak_bytes", 1e-3, ".1f")),
    "peak/mean": (9, "{peak_to_mean:.1f}"),
    "tokens": (9, "{tokens:,}"),
    "seconds": (8, "{seconds:.2f}"),
}


def rows(
    task: Task, methods: Sequence[Method], values: flags.FlagValues
) -> Iterator[Row]:
    """Train by every method with all seeds; yield a row for each method."""
    seeds = flags.seeds(values)
    starts = {seed: pretrain(task, seed, values) for seed in seeds}
    for method in methods:
        trained = [
            train(task, method, start, seed, values) for seed, start in starts.items()
        ]
        yield row(method, trained, values)


def row(method: Method, trained: Sequence[Row], values: flags.FlagValues) -> Row:
    """Return the row of the trainings with all seeds."""
    names = "loss", "bytes_sent", "peak_bytes", "seconds"
    loss, sent, peak, seconds = over_seeds(trained, mean, *names).values()
    losses = [run["loss"] for run in trained]
    return {
        "name": method.name,
        **method._asdict(),
        "loss": loss,
        "losses": losses,
        "range": max(losses) - min(losses),
        "tokens": values.steps * values.ranks * values.batch * values.length,
        "bytes_sent": sent,
        "peak_bytes": peak,
        "peak_to_mean": peak * values.steps / sent,
        "seconds": seconds,
    }


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("loss", "bytes_sent", "peak_bytes", "seconds")
    return {f"{row['name']}_{key}": row[key] for row in rows for key in keys}


def conclude(run: Run) -> str:
    """Return the conclusion: the methods with the least loss and the fewest bytes."""
    summary = run.summary
    losses, sent = (
        {name.removesuffix(key): v for name, v in summary.items() if name.endswith(key)}
        for key in ("_loss", "_bytes_sent")
    )
    best, least = min(losses, key=losses.__getitem__), min(sent, key=sent.__getitem__)
    exact = losses["synchronous"], sent["synchronous"]
    return (
        f"The least loss has {best} ({losses[best]:.3f}, synchronous {exact[0]:.3f}); "
        f"{least} sends {exact[1] / sent[least]:.0f} times fewer bytes than "
        f"synchronous, with a loss of {losses[least]:.3f}."
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the loss of each method by the bytes that a rank sends."""
    with figures.drawing(path, size=(7.2, 3.6)) as (_, (axes,)):
        for row in rows:
            axes.plot(row["bytes_sent"] / 1e6, row["loss"], "o", label=row["name"])
        axes.set(xscale="log", xlabel="MB sent by a rank", ylabel="held-out loss")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
