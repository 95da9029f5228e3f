"""Tables, figure and summary of scaling.py."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector, scaled_cell
from dml.wire.costs.allreduce import Rates
from studies.scaling import bert as scaling_bert
from studies.scaling.bert import PUBLISHED
from studies.scaling.model import BACKWARD, BY_HAND, Training

COLUMNS: dict[str, Columns] = {
    "prediction": {
        "p": (5, "{p}"),
        "overlap": (7, lambda row: "yes" if row["overlap"] else "no"),
        "step ms": (9, scaled_cell("step_seconds", 1e3, ".3f")),
        "best": (16, "{best}"),
        "speed-up": (8, "{speedup:.4g}"),
        "of linear": (9, "{efficiency:.1%}"),
        "bottleneck": (10, "{bottleneck}"),
        "gradient ms": (11, scaled_cell("gradient_seconds", 1e3, ".3f")),
        **{
            name: (max(6, len(name)), f"{{{name}_speedup:.4g}}")
            for name in (*BY_HAND, "native")
        },
    },
    "measured": {
        "algorithm": (16, "{algorithm}"),
        "gradient ms": (11, scaled_cell("gradient_seconds", 1e3, ".3f")),
        "wire ms": (8, scaled_cell("wire_seconds", 1e3, ".3f")),
        "predicted ms": (12, scaled_cell("predicted_seconds", 1e3, ".3f")),
        "measured ms": (11, scaled_cell("seconds", 1e3, ".3f")),
        "pred/meas": (9, lambda r: f"{r['predicted_seconds'] / r['seconds']:.3f}"),
    },
    "bert": {
        "job": (22, "{job}"),
        **{f"{size} V100": (9, f"{{minutes_{size}:.1f}} min") for size in PUBLISHED},
        **{f"eff. {n}": (10, f"{{efficiency_{n}:.1%}}") for n in (1024, 1472)},
        **{f"error {n}": (10, f"{{error_{n}:+.1%}}") for n in (1024, 1472)},
    },
}


def titles(training: Training, rates: Rates) -> dict[str, str]:
    """Return the titles of the tables, with their assumptions."""
    share = "over all workers" if training.strong else "per worker"
    return {
        "prediction": f"predicted speed-up: {training.parameters:,} parameters of "
        f"{training.itemsize} bytes, {training.batch} examples {share}, a gradient of "
        f"{training.gradient(1) * 1e3:.3g} ms on one worker;\n"
        f"alpha {rates.alpha:.3g} s per message, beta {rates.beta:.3g} s and "
        f"gamma {rates.gamma:.3g} s per byte, {training.host} workers per host; "
        f"overlap: with the backward pass, which takes {BACKWARD:.0%} of a gradient",
        "measured": "measured steps: gradient and all-reduce",
        "bert": f"BERT-large by number of V100, efficiency relative to "
        f"{min(PUBLISHED)}; "
        f"{scaling_bert.single_device_text()}\n{scaling_bert.ASSUMED}",
    }


def conclude(run: Run) -> str:
    """Return the largest number of workers, its speed-up and its bottleneck."""
    rows = [row for row in run.rows if row["table"] == "prediction"]
    most = max(row["p"] for row in rows)
    texts = []
    for row in rows:
        if row["p"] == most:
            overlap = "with" if row["overlap"] else "without"
            texts.append(
                f"{row['speedup']:.4g} {overlap} overlap ({row['efficiency']:.0%} of "
                f"linear, by {row['best']}, limited by {row['bottleneck']})"
            )
    return f"Predicted speed-up of {most:,} workers: {', '.join(texts)}."


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw speed-ups by workers when the summary is written."""
    return collector(
        lambda rows, _: draw(path, [r for r in rows if r["table"] == "prediction"])
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw panels without and with overlap; mark where the bottleneck changes."""
    with figures.drawing(path, 1, 2, size=(11.5, 4.4), sharey=True) as drawing:
        figure, panels = drawing
        for axes, overlap in zip(panels, (False, True), strict=True):
            panel_rows = [row for row in rows if row["overlap"] == overlap]
            sizes = [row["p"] for row in panel_rows]
            axes.plot(sizes, sizes, "--", color="gray", label="linear")
            for name in BY_HAND:
                axes.plot(
                    sizes, [r[f"{name}_speedup"] for r in panel_rows], "o-", label=name
                )
            previous = None
            for row in panel_rows:
                if row["bottleneck"] != previous:
                    axes.axvline(row["p"], color="gray", linestyle=":", linewidth=1)
                    text = f"{row['bottleneck']} is the bottleneck "
                    figures.note(axes, text, row["p"], ha="left")
                previous = row["bottleneck"]
            title = "overlapped with the backward pass" if overlap else "no overlap"
            axes.set(title=title, xlabel="workers", yscale="log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
        panels[0].set_ylabel("speed-up")
        figures.legend(figure)


def totals(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the summary of all tables."""
    summary: dict[str, Any] = {}
    for row in tables["prediction"]:
        suffix = f"{'_overlapped' if row['overlap'] else ''}_{row['p']}"
        for key in ("speedup", "efficiency", "best", "bottleneck"):
            summary[f"{key}{suffix}"] = row[key]
    for row in tables["bert"]:
        job = row["job"].replace(", ", "_").replace(" ", "_")
        for size in (1024, 1472):
            summary[f"bert_{job}_{size}"] = row[f"efficiency_{size}"]
            summary[f"bert_{job}_error_{size}"] = row[f"error_{size}"]
    for row in tables["measured"]:
        summary[f"{row['algorithm']}_predicted_over_measured"] = (
            row["predicted_seconds"] / row["seconds"]
        )
    return summary
