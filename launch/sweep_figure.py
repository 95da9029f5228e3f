"""Rows of a sweep in; medians with their quartiles out, a curve for each of --by."""

from pathlib import Path

import polars as pl
from sweep_results import groups

from dml.metrics import figures
from dml.types import BadInput


def draw(path: Path, rows: pl.DataFrame, x: str, y: str, by: str, log: str) -> None:
    """Draw y against x, over all runs that are alike in both x and by."""
    numbers = [column.name for column in rows if column.dtype.is_numeric()]
    every = rows.columns
    for flag, name, known in (("x", x, numbers), ("y", y, numbers), ("by", by, every)):
        if name and name not in known:
            raise BadInput(
                f"expected --{flag} of {', '.join(known)}, got {name}; correct it"
            )
    keys = [by, x] if by and by != x else [x]
    whole = rows.select(*keys, "says", pl.col(y).alias("y")).drop_nulls()
    if whole.is_empty():
        raise BadInput(f"expected runs with {x} and {y} to draw, got none; mend them")
    found = groups(whole, keys).sort(x)
    names = list(dict.fromkeys(whole[by])) if by else [y]
    curves, bands = {}, {}
    for name in names:
        part = found.filter(pl.col(by) == name) if by else found
        words = f"{by} {name}" if by else y
        label = figures.legible(words.replace("$", "\\$"))  # else it would be math
        curves[label] = (part[x].to_list(), part["y_median"].to_list())
        bands[label] = (part["y_q1"].to_list(), part["y_q3"].to_list())
    figures.curves(path, curves, x=x, y=y, log=log, bands=bands)
