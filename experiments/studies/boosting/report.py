"""The figure, the scores and the conclusion of boosting.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.boosting import Model
from dml.data.tables.named import NamedTable
from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row

SHOWN = 15  # columns in the figure


def scores(model: Model, held_out: NamedTable) -> dict[str, float]:
    """Return the error of numbers, or accuracy and area under the curve of classes."""
    made = model.predictions(held_out.x)
    if not held_out.classes:
        return {"rmse": score(made, held_out)}
    found = {"accuracy": float(np.mean(made.argmax(axis=1) == held_out.y))}
    if held_out.classes == 2:
        found["auc"] = score(made, held_out)
    return found


def score(made: np.ndarray, held_out: NamedTable) -> float:
    """Return the RMSE of numbers, the area of 2 classes, or the loss of more."""
    if not held_out.classes:
        return float(np.sqrt(np.mean((made - held_out.y) ** 2)))
    if held_out.classes == 2:
        return area(made[:, 1] if made.ndim > 1 else made, held_out.y)
    shares = made[np.arange(len(made)), held_out.y.astype(int)]
    return float(-np.mean(np.log(np.maximum(shares, 1e-15))))


def area(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the curve, from sums of ranks; ties count half."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    below = ranks[place][labels == 1].sum() - positives * (positives + 1) / 2
    return float(below / (positives * negatives))


def draw(path: Path, rows: Sequence[Row], model: Model, names: Sequence[str]) -> None:
    """Draw the losses by round, and the shares of columns in the gains."""
    gains = model.importances()
    shares = gains / max(gains.sum(), 1e-300)
    order = np.argsort(-shares, kind="stable")[:SHOWN][::-1]
    with figures.drawing(path, 1, 2, size=(9.6, 3.9)) as (_, (left, right)):
        steps = [row["step"] for row in rows]
        for name, key in (("training", "loss"), ("held out", "held_out_loss")):
            left.plot(steps, [row[key] for row in rows], label=name)
        left.set(xlabel="round", ylabel="loss")
        left.legend()
        right.barh([names[i] for i in order], shares[order])
        right.set(xlabel="share of the gains")
        right.xaxis.set_major_formatter("{x:.0%}")


def conclude(run: Run) -> str:
    """Return the scores and the hash in a sentence."""
    summary: dict[str, Any] = run.summary
    found = [
        text.format(summary[key])
        for key, text in {
            "rmse": "RMSE {:.5g}",
            "accuracy": "accuracy {:.1%}",
            "auc": "AUC {:.4f}",
        }.items()
        if key in summary
    ]
    votes = run.flags["split"] == "vote"
    splits = "vote of these shards" if votes else "split"
    return (
        f"{summary['trees']:,} trees by {summary['ranks']} "
        f"{'rank' if summary['ranks'] == 1 else 'ranks'}, held out: "
        f"{', '.join(found)}. The model has the hash {summary['sha256'][:16]}, for "
        f"every number of ranks and every {splits}."
    )
