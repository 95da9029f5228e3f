"""Columns, figure and conclusion of dimensions.py."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.claims import grouped, matching
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.runs import writers
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, scaled_cell
from studies.dimensions.gap import difference
from studies.dimensions.steps import Technique
from studies.dimensions.tables import Tables

ASKED = 256  # cores of the question
DRAWN, LEAST = 60, 1e-7  # points of a curve of gaps, at most; the least gap drawn


def tables(techniques: Sequence[Technique]) -> dict[str, Columns]:
    """Return the columns of each table."""
    speedup: Columns = {
        "p": (5, "{p:,}"),
        **{
            str(way): (max(9, len(str(way))), f"{{speedup_{way.key}:,.2f}}")
            for way in techniques
        },
        "MB a rank": (9, scaled_cell("rank_bytes", 1e-6, ",.3f")),
    }
    return {
        "dense": speedup,
        "sparse": speedup,
        "limits": {
            "data": (6, "{data}"),
            "step": (10, "{technique}"),
            "rounds": (6, "{rounds:.3f}"),
            "words": (9, "{words:,.1f}"),
            "p* formula": (10, "{formula:,.1f}"),
            "simulated": (9, "{simulated:,.1f}"),
            "fastest p": (9, "{fastest:,}"),
            "speed-up": (8, "{speedup:,.1f}"),
        },
        "best_sizes": {
            "alpha µs": (8, scaled_cell("alpha", 1e6, ".3g")),
            "p": (5, "{p}"),
            "s b formula": (11, "{formula:.1f}"),
            "s b simulated": (13, "{simulated}"),
            "µs a step, s=1": (14, scaled_cell("seconds_1", 1e6, ".2f")),
            "best s": (8, scaled_cell("seconds", 1e6, ".3f")),
            "ratio": (6, "{gain:.1f}"),
        },
        "reached": {
            "method": (19, "{method}"),
            "p": (3, "{p}"),
            "rounds": (6, "{rounds:,}"),
            "words a rank": (12, "{words:,}"),
            "virtual ms": (10, scaled_cell("seconds", 1e3, ".3f")),
            "gap": (8, "{gap:.1e}"),
        },
        "measured": {
            "data": (6, "{data}"),
            "step": (20, "{technique}"),
            "p": (3, "{p}"),
            "words": (9, "{words:,.1f}"),
            "measured ms": (11, scaled_cell("seconds", 1e3, ".4f")),
            "predicted": (9, scaled_cell("predicted", 1e3, ".4f")),
        },
        "peers": {
            "problem": (12, "{problem}"),
            "method": (14, "{peer}"),
            "workers": (7, "{workers}"),
            "ms": (10, scaled_cell("seconds", 1e3, ",.1f")),
            "CPU ms": (10, scaled_cell("cpu_seconds", 1e3, ",.1f")),
            "objective": (12, "{objective:.9g}"),
            "gap": (8, "{gap:.1e}"),
            "nonzeros": (9, "{nonzeros:,}"),
        },
    }


def titles(features: int, nonzeros: int, size: int) -> dict[str, str]:
    """Return the titles of the tables."""
    step = "speed-up of a step over one core, by number of virtual cores p"
    return {
        "dense": f"{step}: {features:,} features",
        "sparse": f"{step}: {nonzeros} nonzero features of {features:,}",
        "limits": "rounds of a step, and words that a rank sends on most cores; p*, "
        "from which more cores do not help",
        "best_sizes": "the best s b of s-step SGD, by the seconds of a message",
        "reached": f"until a gap of 1e-4, on {size} virtual cores",
        "measured": "seconds of a step on real ranks",
        "peers": "beside libraries of linear models: medians of a training, and the "
        "relative gap to the least objective",
    }


@contextmanager
def console(
    columns: Mapping[str, Columns], texts: Mapping[str, str], wide: bool
) -> Iterator[Writer]:
    """Print the rows of the tables that have columns."""
    with writers.tables(columns, texts, wide) as writer:

        def row(row: Row) -> None:
            if row["table"] in columns:
                writer.row(row)

        yield Writer(row, writer.summary)


def conclude(run: Run) -> str:
    """Return the answer to the question of the lecture."""
    tables = grouped(run.rows, "table")
    if "peers" in tables:
        own = [row for row in tables["peers"] if row["peer"].startswith("dml")]
        largest = max(row["gap"] for row in own)
        return f"The objectives of dml are within {largest:.1e} of the least ones."
    if "measured" in tables:
        ratios = [row["predicted"] / row["seconds"] for row in tables["measured"]]
        return (
            f"Predicted over measured seconds: {min(ratios):.2f} to {max(ratios):.2f}."
        )
    texts = []
    for data in ("dense", "sparse"):
        row = min(tables[data], key=lambda row: abs(row["p"] - ASKED))
        found = {
            key.removeprefix("speedup_"): value
            for key, value in row.items()
            if key.startswith("speedup_") and value is not None
        }
        first, best = next(iter(found)), max(found, key=found.__getitem__)
        limits = matching(tables.get("limits", ()), data=data)
        limit = [f" (p* = {row['formula']:,.3g})" for row in limits[:1]]
        texts.append(
            f"{data} rows: {row['p']:,} cores speed up a step {found[first]:,.3g} "
            f"times with {title(first)}{''.join(limit)}, {found[best]:,.4g} times with "
            f"{title(best)}"
        )
    done = {row["method"]: row["words"] for row in tables["reached"]}
    rows_words, least = done["SGD, rows"], min(done, key=done.__getitem__)
    texts.append(
        f"until a gap of 1e-4, {least}, sends {rows_words / max(done[least], 1):,.0f} "
        "times fewer words than SGD on rows"
    )
    return f"With {tables['dense'][0]['features']:,} features, {'; '.join(texts)}."


def title(key: str) -> str:
    """Return the title of a technique from its key."""
    return str(Technique(*map(int, re.findall(r"\d+", key))))


def summarize(tables: Tables) -> dict[str, float]:
    """Return the flat summary."""
    found = {"difference": difference()}
    for data in ("dense", "sparse"):
        keys = [key for key in tables[data][0] if key.startswith(("speedup", "words"))]
        found |= flatten_rows(tables[data], f"{data}_{{p}}_{{key}}", *keys)
    limit = "{data}_{technique}_{key}"
    found |= flatten_rows(tables["limits"], limit, "formula", "simulated")
    found |= flatten_rows(tables["best_sizes"], "{alpha}_{key}", "formula", "simulated")
    keys = "rounds", "words", "seconds", "gap"
    return found | flatten_rows(tables["reached"], "{method}_{key}", *keys)


def draw(path: Path, tables: Tables) -> None:
    """Draw speed-ups by p of dense and sparse data, and gaps by rounds and words."""
    with figures.drawing(path, 2, 2, size=(9.6, 7.2)) as (_, panels):
        for axes, data in zip(panels, ("dense", "sparse"), strict=False):
            keys = [key for key in tables[data][0] if key.startswith("speedup_")]
            for key in keys:
                shown = [row for row in tables[data] if row[key] is not None]
                axes.plot(
                    [row["p"] for row in shown],
                    [row[key] for row in shown],
                    label=title(key.removeprefix("speedup_")),
                )
            axes.set(xlabel="p", ylabel=f"speed-up, {data}", xscale="log", yscale="log")
        panels[0].legend()
        for axes, key in zip(panels[2:], ("rounds", "words"), strict=True):
            for name, points in grouped(tables["gaps"], "method").items():
                few = [*points[:-1][:: max(1, len(points) // DRAWN)], points[-1]]
                axes.plot(
                    [point[key] for point in few],
                    [max(point["gap"], LEAST) for point in few],
                    label=name,
                )
            axes.set(xlabel=key, ylabel="gap", xscale="log", yscale="log")
            axes.set_ylim(LEAST, 1)
        panels[3].legend(loc="lower right")
