"""Tables and figure of a sweep.

results.csv and .parquet: a row per run: flags, exit code and summary.
groups.csv and .parquet: a row per group of seeds: medians and quartiles.
figure.svg and .png: medians and quartiles, a curve per value of --by.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
from sweep_grid import Cell
from sweep_runs import Ended

from dml.figures import style as figures
from dml.runs import results
from dml.types import BadInput

RESERVED = (
    "n",
    "code",
    "wall_seconds",
    "run",
    "error_message",
)  # reserved column names
MEASURES = (
    "loss",
    "accuracy",
    "seconds",
    "energy_kwh",
)  # columns of the printed table by default
STATISTICS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "median": lambda numbers: numbers.median(),
    "q1": lambda numbers: numbers.quantile(0.25, "linear"),
    "q3": lambda numbers: numbers.quantile(0.75, "linear"),
}


def frame(runs: Sequence[Ended]) -> pl.DataFrame:
    """Return a row per run: flags, exit code and summary.

    A reserved name becomes --name for a flag and summary.name for a summary.
    """
    columns = flags([run.job.cell for run in runs])
    columns |= {
        "code": [run.code for run in runs],
        "wall_seconds": [run.seconds for run in runs],
    }
    summaries = [summary(run) for run in runs]
    for key in dict.fromkeys(key for by_name in summaries for key in by_name):
        values = [by_name.get(key) for by_name in summaries]
        columns[f"summary.{key}" if key in {*columns, *RESERVED} else key] = values
    columns["run"] = [run.job.folder.name for run in runs]
    columns["error_message"] = [run.error for run in runs]
    return pl.DataFrame([series(name, values) for name, values in columns.items()])


def flags(cells: Sequence[Cell]) -> dict[str, list[Any]]:
    """Return the columns of ranks and flags: varying flags first, the seed last."""
    by_flag = {flag: [cell.flags[flag] for cell in cells] for flag in cells[0].flags}
    ranks = [cell.ranks for cell in cells]
    columns = {} if None in ranks else {"n": ranks}
    columns |= {
        f"--{flag}" if flag in RESERVED else flag: convert(texts)
        for flag, texts in by_flag.items()
    }
    return dict(
        sorted(
            columns.items(),
            key=lambda item: (item[0] == "seed", len(set(item[1])) == 1),
        )
    )


def convert(texts: Sequence[str]) -> list[Any]:
    """Return texts as integers or floats, if all can be converted."""
    for number_type in (int, float):
        with suppress(ValueError):
            return [number_type(text) for text in texts]
    return list(texts)


def summary(run: Ended) -> Mapping[str, Any]:
    """Return the summary of a run, empty if the run failed."""
    if run.error:
        return {}
    values = results.read_object(run.job.folder / "summary.json")
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float | str)
    }


def series(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of one type: numbers, booleans, or else text."""
    types = {type(value) for value in values} - {type(None)}
    if types <= {bool}:
        return pl.Series(name, values, pl.Boolean)
    if types == {int} and all(abs(value or 0) < 1 << 63 for value in values):
        return pl.Series(name, values, pl.Int64)
    if types <= {int, float}:
        with suppress(OverflowError):  # integers beyond float64 become text
            numbers = [value if value is None else float(value) for value in values]
            return pl.Series(name, numbers, pl.Float64)
    texts = [value if value is None else value_text(value) for value in values]
    return pl.Series(name, texts, pl.String)


def value_text(value: Any) -> str:
    """Return a value as text; lone surrogates of JSON are replaced."""
    return str(value).encode(errors="replace").decode()


def groups(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return statistics of every numeric column over runs with equal keys."""
    numbers = measure_names(rows, keys)
    succeeded = pl.col("error_message") == ""
    columns = [succeeded.sum().alias("count")]
    columns += [
        statistic(pl.col(name).filter(succeeded)).alias(f"{name}_{suffix}")
        for name in numbers
        for suffix, statistic in STATISTICS.items()
    ]
    if not keys:
        return rows.select(columns)
    return rows.group_by(keys, maintain_order=True).agg(columns)


def measure_names(rows: pl.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the names of numeric columns other than flags and codes."""
    excluded = {*keys, "seed", "code"}
    return [c.name for c in rows if c.dtype.is_numeric() and c.name not in excluded]


def keys(cells: Sequence[Cell]) -> list[str]:
    """Return the columns that define a group: all flags except the seed."""
    return [name for name in flags(cells) if name != "seed"]


def write(out: Path, **frames: pl.DataFrame) -> None:
    """Write each frame by its name, as CSV and as Parquet."""
    for name, table in frames.items():
        table.write_csv(out / f"{name}.csv")
        table.write_parquet(out / f"{name}.parquet")


def printed_columns(
    groups: pl.DataFrame, keys: Sequence[str], y: str | None
) -> list[dict[str, str]]:
    """Return the printed columns as text: varying flags, counts and medians."""
    differ = [key for key in keys if groups[key].n_unique() > 1]
    names = [c.removesuffix("_median") for c in groups.columns if c.endswith("_median")]
    selected = [y] if y else [name for name in MEASURES if name in names]
    cells = {key: [str(value) for value in groups[key]] for key in [*differ, "count"]}
    for name in selected or names[:3]:
        if name not in names:  # for example, if all runs failed
            cells[name] = ["-"] * len(groups)
            continue
        statistics = (groups[f"{name}_{statistic}"] for statistic in STATISTICS)
        cells[name] = [spread(*values) for values in zip(*statistics, strict=True)]
    return [
        dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)
    ]


def spread(median: float | None, q1: float, q3: float) -> str:
    """Return a median, with its quartiles if they differ."""
    if median is None:
        return "-"
    return f"{median:.4g}" + (f" ({q1:.3g} … {q3:.3g})" if q1 < q3 else "")


def draw(path: Path, rows: pl.DataFrame, x: str, y: str, by: str, log: str) -> None:
    """Draw y against x: medians and quartiles of the runs with equal `x` and `by`.

    Args:
      path: Path of the figure, without suffix.
      rows: A row per run.
      x: Column of the x axis.
      y: Column of the y axis.
      by: Column with one curve per value; "" for a single curve.
      log: Logarithmic axes: "x", "y", "xy" or "".
    """
    numbers = [column.name for column in rows if column.dtype.is_numeric()]
    axes = ("x", x, numbers), ("y", y, numbers), ("by", by, rows.columns)
    for flag, name, columns in axes:
        if name and name not in columns:
            raise BadInput(
                f"expected --{flag} of {', '.join(columns)}, got {name}; correct it"
            )
    keys = [by, x] if by and by != x else [x]
    complete = rows.select(*keys, "error_message", pl.col(y).alias("y")).drop_nulls()
    if complete.is_empty():
        raise BadInput(
            f"expected successful runs with {x} and {y}, got none; fix the runs"
        )
    summaries = groups(complete, keys).sort(x)
    names = list(dict.fromkeys(complete[by])) if by else [y]
    curves, bands = {}, {}
    for name in names:
        points = summaries.filter(pl.col(by) == name) if by else summaries
        text = f"{by} {name}" if by else y
        # $ is escaped, because matplotlib would parse math
        label = figures.legible(text.replace("$", "\\$"))
        curves[label] = (points[x].to_list(), points["y_median"].to_list())
        bands[label] = (points["y_q1"].to_list(), points["y_q3"].to_list())
    figures.curves(path, curves, x=x, y=y, log=log, bands=bands)
