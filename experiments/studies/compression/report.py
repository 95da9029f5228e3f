"""The rows, conclusion and figure of compressed.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dml.figures import style as figures
from dml.runs.writers import Columns, scaled_cell
from dml.train import Curve

Row = dict[str, Any]
TAIL = 20  # updates over which the loss at the end is averaged
CLOSE = 0.01  # accuracies are close if they differ by at most this much

COLUMNS: Columns = {
    "reducer": (23, "{reducer}"),
    "MB": (8, scaled_cell("bytes_sent", 1e-6, ".3f")),
    "ratio": (7, "{ratio:.1f}"),
    "loss": (7, "{loss:.4f}"),
    "accuracy": (8, "{accuracy:.3f}"),
    "codec us": (9, scaled_cell("codec_seconds", 1e6, ".0f")),
    "pays below": (12, "{pays}"),
}


def row(
    name: str, trained: Curve, seconds: float, ranks: int, exact: Sequence[Row]
) -> Row:
    """Return the row of a reducer.

    Args:
      name: Name of the reducer.
      trained: Its training.
      seconds: Seconds of coding and decoding, per update and rank.
      ranks: Number of ranks.
      exact: The row of the exact reducer; empty for this reducer itself.
    """
    steps = trained.rows
    sent = 4 * sum(step["words_sent"] for step in steps)
    saved = (exact[0]["bytes_sent"] - sent) / len(steps) if exact else 0.0
    bandwidth = 8e-9 * saved / seconds if saved > 0 and seconds > 0 else None
    losses = [step["loss"] for step in steps[-TAIL:]]
    return {
        "reducer": name,
        "ranks": ranks,
        "bytes_sent": sent,
        "ratio": exact[0]["bytes_sent"] / sent if exact and sent else 1.0,
        "loss": sum(losses) / len(losses),
        "accuracy": trained.summary.get("accuracy"),
        "codec_seconds": seconds,
        "break_even_gbps": bandwidth,
        "pays": pays(bandwidth, bool(exact), saved),
    }


def pays(bandwidth: float | None, is_code: bool, saved: float) -> str:
    """Return the text of the bandwidth below which a code saves time."""
    if bandwidth is None:
        return "never" if is_code and saved <= 0 else "-"
    return f"{bandwidth:.2f} Gb/s"


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    keys = ("bytes_sent", "ratio", "loss", "accuracy", "break_even_gbps")
    return {f"{row['reducer']}_{key}": row[key] for row in rows for key in keys}


def conclude(summary: Mapping[str, Any]) -> str:
    """Return the best ratio among reducers that are as accurate as the exact one."""
    metric = "accuracy" if summary["exact_accuracy"] is not None else "loss"
    exact = summary[f"exact_{metric}"]
    names = [key.removesuffix("_ratio") for key in summary if key.endswith("_ratio")]
    sign = 1 if metric == "accuracy" else -1
    close = [
        name
        for name in names
        if sign * (summary[f"{name}_{metric}"] - exact) >= -CLOSE and name != "exact"
    ]
    if not close:
        return f"No reducer has the {metric} of the exact one, {exact:.3f}."
    best = max(close, key=lambda name: summary[f"{name}_ratio"])
    break_even = summary[f"{best}_break_even_gbps"]
    where = f"below {break_even:.2f} Gb/s" if break_even else "on no network"
    return (
        f"{best} sends {summary[f'{best}_ratio']:.0f} times fewer bytes at "
        f"{metric} {summary[f'{best}_{metric}']:.3f} (exact: {exact:.3f}); with the "
        f"measured codec it saves time {where}."
    )


def draw(path: Path, curves: Mapping[str, Sequence[Row]]) -> None:
    """Draw the loss, smoothed over TAIL updates, by updates and by bytes."""
    by_update, by_bytes = {}, {}
    for name, steps in curves.items():
        losses, sent, total, mean = [], [], 0.0, None
        for step in steps:
            mean = step["loss"] if mean is None else mean + (step["loss"] - mean) / TAIL
            total += 4e-6 * step["words_sent"]
            losses.append(mean)
            sent.append(total)
        by_update[name] = list(range(1, len(steps) + 1)), losses
        by_bytes[name] = sent, losses
    dashed = [name for name in curves if "+feedback" not in name and name != "exact"]
    labels = {"y": "training loss", "dashed": dashed}
    figures.curves(path / "updates", by_update, x="update", log="y", **labels)
    figures.curves(path / "bytes", by_bytes, x="MB sent per rank", log="xy", **labels)
