"""The tables of `pipeline.py`, and the numbers of them in its summary."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipeline_rows import MANY, Plan, compared, grid, measured, uneven

from dml.metrics.writers import Row


def said(counts: Sequence[int]) -> str:
    """Return what there is at every stage, those in the middle left out where many."""
    short = [*counts[:4], "…", *counts[-3:]] if len(counts) > 8 else counts
    return " ".join(map(str, short))


def number(key: str, width: int, form: str = ".2f") -> Any:
    return width, lambda row: format(row[key], form)


class Table(NamedTuple):
    """A title, columns as writers.table takes them, rows, and what a summary keeps."""

    title: str
    columns: Mapping[str, tuple[int, Callable[[Row], str]]]
    rows: Callable[[Plan], Iterator[Row]]
    keeps: Callable[[Row], Row]


FOUND = {"formula": number("formula", 7), "virtual": number("virtual", 7)}
PLACE = {"K": number("stages", 2, "d")}
PUBLISHED = {"published": number("published", 9)}
TABLES: dict[str, Table] = {
    "grid": Table(
        "GPipe's Table 2, Transformer: speed-up over one device, KM/(M + K - 1)",
        PLACE | {"M": number("microbatches", 2, "d")} | PUBLISHED | FOUND,
        grid,
        lambda row: {f"speed_up_{row['stages']}_{row['microbatches']}": row["virtual"]},
    ),
    "imbalance": Table(
        f"The same of uneven layers (AmoebaNet), M = {MANY}: at most K / imbalance",
        PLACE
        | {"layers cut": (10, lambda row: row["cut"])}
        | PUBLISHED
        | {"imbalance": number("imbalance", 9), "K/imbalance": number("bound", 11)}
        | {"virtual": FOUND["virtual"]},
        uneven,
        lambda row: {
            f"uneven_{row['stages']}_{row['cut'].replace(' ', '_')}": row["virtual"]
        },
    ),
    "measured": Table(
        "On real devices, a core each: speed-up over one, and MB beside the params",
        PLACE
        | {"M": number("microbatches", 2, "d")}
        | {"schedule": (8, lambda row: f"{row['way']:8}")}
        | {"ms a step": number("milliseconds", 9, ".0f"), "formula": FOUND["formula"]}
        | {"measured": number("measured", 8), "MB": number("temporary_mb", 7, ".1f")},
        measured,
        lambda row: {
            f"measured_{row['way']}_{row['microbatches']}": row["measured"],
            f"temporary_mb_{row['way']}_{row['microbatches']}": row["temporary_mb"],
        },
    ),
    "schedules": Table(
        "Schedules; alive: microbatches that a stage keeps at most, over its v parts",
        {
            "schedule": (11, lambda row: f"{row['schedule']:11}"),
            "v": number("rounds", 2, "d"),
            "bubble": number("bubble", 6, ".1%"),
            "alive by stage": (20, lambda row: said(row["alive"])),
        }
        | FOUND
        | {"staleness by stage": (20, lambda row: said(row["staleness"]))},
        compared,
        lambda row: {
            f"bubble_{row['schedule']}": row["bubble"],
            f"alive_{row['schedule']}": max(row["alive"]),
            f"speed_up_{row['schedule']}": row["virtual"],
            f"staleness_{row['schedule']}": max(row["staleness"]),
        },
    ),
}
