"""Rows, summary, conclusion and figure of decentralised.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import flags
import numpy as np

from dml.case import mean, over_seeds
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from dml.task import Task
from studies.decentralised.training import Row, Setting, topologies, train

COLUMNS: Columns = {
    "skew": (15, "{skew}"),
    "strategy": (31, "{name}"),
    "accuracy": (8, "{accuracy:.3f}"),
    "range": (6, "{range:.3f}"),
    "MB": (8, scaled_cell("bytes_sent", 1e-6, ".3f")),
    "lr": (5, "{lr:g}"),
    "each": (8, "{each:.3f}"),
    "consensus": (10, "{consensus:.2g}"),
    "seconds": (8, "{seconds:.2f}"),
}


def rows(
    task: Task,
    strategies: Sequence[str],
    skews: Sequence[str],
    rates: Sequence[float],
    values: flags.FlagValues,
) -> Iterator[Row]:
    """Train with all seeds of every strategy and skew; yield a row for each.

    Args:
      task: The task.
      strategies: Names of strategies.
      skews: Skews of the shards.
      rates: Learning rates; a row is of the most accurate one.
      values: The flags.
    """
    seeds = flags.seeds(values)
    for skew in skews:
        for name in strategies:
            graphs = topologies(name, values)
            for graph in graphs:
                label = name if len(graphs) == 1 else f"{name} on {graph}"
                by_rate = []
                for rate in rates:
                    own = Setting(name, graph, skew, rate)
                    trained = [train(task, own, seed, values) for seed in seeds]
                    by_rate.append({"name": label} | row(own, trained))
                yield max(by_rate, key=lambda row: row["accuracy"])


def row(setting: Setting, trained: Sequence[Row]) -> Row:
    """Return the row of the trainings with all seeds."""
    accuracies = [run["accuracy"] for run in trained]
    return {
        **setting._asdict(),
        **over_seeds(trained, mean, "accuracy"),
        "range": max(accuracies) - min(accuracies),
        "accuracies": accuracies,
        **over_seeds(trained, mean, "each", "consensus", "bytes_sent", "seconds"),
    }


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("accuracy", "each", "consensus", "bytes_sent", "seconds")
    return {
        f"{row['name']}_{row['skew']}_{key}": row[key] for row in rows for key in keys
    }


def conclude(run: Run) -> str:
    """Return the conclusion: the most accurate strategy of each skew."""
    summary = run.summary
    best: dict[str, tuple[float, str]] = {}
    for key, value in summary.items():
        if key.endswith("_accuracy"):
            name, _, skew = key.removesuffix("_accuracy").rpartition("_")
            best[skew] = max(best.get(skew, (0.0, "")), (value, name))
    texts = [f"{name} on {skew} ({value:.1%})" for skew, (value, name) in best.items()]
    return f"The most accurate strategies are {', '.join(texts)}."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the accuracy of each strategy by skew; dashes are single replicas."""
    skews = list(dict.fromkeys(row["skew"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    least = min(row["each"] for row in rows)
    with figures.drawing(path, size=(7.2, 3.6)) as (_, (axes,)):
        for number, skew in enumerate(skews):
            drawn = [row for row in rows if row["skew"] == skew]
            places = np.arange(len(names)) + (number - (len(skews) - 1) / 2) * 0.25
            axes.bar(places, [row["accuracy"] for row in drawn], 0.22, label=skew)
            axes.plot(places, [row["each"] for row in drawn], "_", color="black")
        axes.set_xticks(np.arange(len(names)), names, rotation=30, ha="right")
        axes.set(ylabel="accuracy of the mean", ylim=(np.floor(10 * least) / 10, 1))
        axes.legend(ncol=len(skews), loc="lower left", bbox_to_anchor=(0, 1))
