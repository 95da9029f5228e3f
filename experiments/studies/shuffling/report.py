"""Rows, summary and figure of shuffling.py."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import flags
from lab.claims import grouped
import jax
import numpy as np

from dml.case import over_seeds
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from dml.strategies.exchange import example_bytes
from dml.task import Task
from studies.shuffling.formulas import (
    IMAGENET,
    Sizes,
    parity,
    ring_bytes,
    traffic_ratio,
)
from studies.shuffling.training import SHARDS, Row, Setting, train

COLUMNS: Columns = {
    "strategy": (11, "{strategy}"),
    "shards": (6, "{shards}"),
    "Q": (5, "{fraction:g}"),
    "accuracy %": (12, lambda row: mean_and_deviation(row["accuracies"])),
    "shuffle MB": (10, scaled_cell("shuffle_bytes", 1e-6, ".5f")),
    "gradient MB": (11, scaled_cell("gradient_bytes", 1e-6, ".5f")),
    "ratio": (8, "{ratio:.2%}"),
    "r": (6, "{compression:.1f}"),
    "formula": (8, "{formula:.2%}"),
}


def rows(
    task: Task,
    strategies: Sequence[str],
    fractions: Sequence[float],
    values: flags.FlagValues,
) -> Iterator[Row]:
    """Train with all seeds of every setting; yield a row for each setting."""
    seeds = flags.seeds(values)
    for strategy in strategies:
        for shards in SHARDS:
            for fraction in fractions:
                settings = [Setting(strategy, shards, fraction, seed) for seed in seeds]
                trainings = [train(task, setting, values) for setting in settings]
                yield row(task, settings[0], trainings, values)


def row(
    task: Task,
    setting: Setting,
    trainings: Sequence[Row],
    values: flags.FlagValues,
) -> Row:
    """Return the row of the trainings with all seeds.

    Args:
      task: The task.
      setting: Strategy, shards and fraction of all trainings.
      trainings: One training per seed.
      values: The flags.
    """
    updates, count = trainings[0]["updates"], len(task.training.targets)
    exchanged, reduced = over_seeds(trainings, sum, "exchanged", "reduced").values()
    params = task.problem(setting.seed).params
    runs = len(trainings) * values.ranks
    sizes = Sizes(
        example_bytes(task.training),
        values.epochs * count / (values.ranks * updates),
        sum(leaf.nbytes for leaf in jax.tree.leaves(params)),
    )
    dense = runs * updates * ring_bytes(sizes.model, values.ranks)
    compression = dense / reduced
    accuracies = [run["accuracy"] for run in trainings]
    return {
        "strategy": setting.strategy,
        "shards": setting.shards,
        "fraction": setting.fraction,
        "shuffle_bytes": exchanged / runs / values.epochs,
        "gradient_bytes": reduced / runs / values.epochs,
        "examples_sent": exchanged // sizes.example,
        "compression": compression,
        "ratio": exchanged / reduced,
        "formula": traffic_ratio(sizes, setting.fraction, compression),
        "parity": parity(sizes),
        "accuracies": accuracies,
        "accuracy": float(np.mean(accuracies)),
    }


def mean_and_deviation(accuracies: Sequence[float]) -> str:
    """Return mean and standard deviation in %; one number has no deviation."""
    text = f"{100 * np.mean(accuracies):.2f}"
    if len(accuracies) == 1:
        return text
    return f"{text} ± {100 * deviation(accuracies):.2f}"


def deviation(accuracies: Sequence[float]) -> float:
    """Return the standard deviation; 0 for one number."""
    return float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0


def name(row: Row) -> str:
    """Return the name of the row in the summary."""
    return f"{row['strategy']}_{row['shards']}_{row['fraction']:g}"


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("accuracy", "ratio", "formula", "shuffle_bytes")
    return {f"{name(row)}_{key}": row[key] for row in rows for key in keys} | {
        "parity": rows[0]["parity"],
        "imagenet_ratio": traffic_ratio(IMAGENET),
        "imagenet_parity": parity(IMAGENET),
    }


def print_parity(summary: Mapping[str, Any]) -> None:
    """Print the compression at which both traffics are equal, here and for ImageNet."""
    example, batch, model = IMAGENET
    sys.stdout.write(
        f"parity of a global reshuffle and gradients: r = {summary['parity']:.1f}; "
        f"ImageNet and ResNet-50 (x = {example / 1e3:g} KB, b = {batch:g}, "
        f"n = {model / 1e6:g} MB): ratio {summary['imagenet_ratio']:.1%} at r = 1, "
        f"parity at r = {summary['imagenet_parity']:.1f}\n"
    )


def conclude(run: Run) -> str:
    """Return the accuracies without and with exchanged examples."""
    texts = []
    for (strategy, shards), rows in grouped(run.rows, "strategy", "shards").items():
        rows = sorted(rows, key=lambda row: row["fraction"])
        parts = [f"{r['accuracy']:.1%} at Q = {r['fraction']:g}" for r in rows]
        kept = parts[:1] + parts[-1:] if len(parts) > 1 else parts
        texts.append(f"{strategy} on {shards} shards {', '.join(kept)}")
    return f"Accuracies: {'; '.join(texts)}."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the accuracy by exchanged bytes; bars are standard deviations."""
    sent = [row["shuffle_bytes"] / 1e6 for row in rows if row["shuffle_bytes"]]
    with figures.drawing(path, size=(6.4, 4.0)) as (_, (axes,)):
        for line in dict.fromkeys((row["strategy"], row["shards"]) for row in rows):
            of_line = [row for row in rows if (row["strategy"], row["shards"]) == line]
            axes.errorbar(
                [row["shuffle_bytes"] / 1e6 for row in of_line],
                [row["accuracy"] for row in of_line],
                [deviation(row["accuracies"]) for row in of_line],
                marker="o",
                capsize=3,
                label=", ".join(line),
                linestyle="-" if line[1] == "sorted" else "--",
            )
        # linear between 0, which has no logarithm, and the least exchange
        axes.set_xscale("symlog", linthresh=min(sent, default=1.0))
        axes.set(xlabel="MB exchanged per epoch and rank", ylabel="accuracy")
        axes.legend()
