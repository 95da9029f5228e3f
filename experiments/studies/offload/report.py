"""Tables, figure and conclusion of offload.py."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.claims import grouped

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from studies.offload import brute_force, training, virtual
from studies.offload.workload import Device, Workload


class Arguments(NamedTuple):
    """The arguments of all tables.

    Attributes:
      draws: Number of random orders of accesses per case.
      buffers: Number of buffers that are read in turn.
      trained: GPT that is trained.
      steps: Number of its updates; 0: not trained.
      virtual: GPT in virtual time; None: none.
      device: Speeds of the virtual device.
      fractions: Capacities, relative to the memory in which everything fits.
      seed: Random seed.
    """

    draws: int
    buffers: int
    trained: Workload
    steps: int
    virtual: Workload | None
    device: Device
    fractions: list[float]
    seed: int


Tables = Mapping[str, Sequence[Row]]  # rows of earlier tables by name

COLUMNS: dict[str, Columns] = {
    "searched": {
        "accesses of 4 to 8 buffers": (33, "{case}"),
        "rule": (9, "{method}"),
        "best": (9, lambda row: f"{row['best']} of {row['draws']}"),
        "mean/least": (10, "{mean_ratio:.3f}"),
        "worst/least": (11, "{worst_ratio:.3f}"),
    },
    "cyclic": {
        "buffers": (7, "{buffers}"),
        "capacity": (8, "{capacity}"),
        "belady": (6, "{belady:.2f}"),
        "T s": (5, "{belady_seconds:.2f}"),
        "with a reserve": (14, "{reserve:.2f}"),
        "T s ": (5, "{reserve_seconds:.2f}"),
        "lru": (5, "{lru:.2f}"),
        "T s  ": (5, "{lru_seconds:.2f}"),
    },
    "trained": {
        "ranks": (5, "{ranks}"),
        "rule": (11, "{method}"),
        "of all": (6, "{fraction:.0%}"),
        "moved MB/step": (13, lambda row: per_step(row, "counted_bytes")),
        "planned": (8, lambda row: per_step(row, "predicted_bytes")),
        "loss": (7, "{loss:.4f}"),
        "sha256": (8, lambda row: row["sha256"][:8]),
        "ms/step": (7, scaled_cell("seconds", 1e3, ".0f")),
        "memory MB": (9, scaled_cell("capacity", 1e-6, ".1f")),
        "peak MB": (8, scaled_cell("peak_bytes", 1e-6, ".1f")),
    },
    "virtual": {
        "activations": (11, "{network}"),
        "method": (19, "{method}"),
        "of all": (6, "{fraction:.0%}"),
        "T s": (7, "{seconds:.3f}"),
        "T/max": (6, "{above_bound:.3f}"),
        "speed": (6, "{throughput:.0%}"),
        "memory MB": (9, scaled_cell("capacity", 1e-6, ",.0f")),
        "compute s": (9, "{compute:.3f}"),
        "transfer s": (10, "{transfer:.3f}"),
    },
}
TITLES = {
    "searched": "Random orders: the rule's moves in relation to the best of all plans",
    "cyclic": "Fetches and seconds of equal buffers that are read in turn, 1 s each",
    "trained": "A GPT trained here with less and less device memory",
    "virtual": "A GPT on a virtual device: seconds of an iteration",
}


def per_step(row: Row, key: str) -> str:
    """Return megabytes per update as text."""
    return f"{row[key] / row['steps'] / 1e6:.1f}"


def searched(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Yield rows of random orders."""
    return brute_force.rows(arguments.draws, arguments.seed)


def cyclic(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Yield rows of buffers that are read in turn."""
    return virtual.cyclic_rows(arguments.buffers)


def trained(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Yield rows of trainings."""
    if not arguments.steps:
        return ()
    sizes = arguments.fractions, arguments.steps, arguments.seed
    return training.rows(arguments.trained, *sizes)


def in_virtual_time(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Yield rows in virtual time."""
    if not arguments.virtual:
        return ()
    return virtual.rows(arguments.virtual, arguments.device, arguments.fractions)


TABLES: dict[str, Callable[[Arguments, Tables], Iterable[Row]]] = {
    "searched": searched,
    "cyclic": cyclic,
    "trained": trained,
    "virtual": in_virtual_time,
}


def summarize(tables: Tables) -> dict[str, Any]:
    """Return the least memory, and the throughput in it."""
    summary: dict[str, Any] = {}
    for row in tables["searched"]:
        if row["method"] == "belady":
            name = row["case"].replace(":", "").replace(",", "").replace(" ", "_")
            summary[f"mean_ratio_{name}"] = row["mean_ratio"]
    if tables["trained"]:
        least = min(tables["trained"], key=lambda row: row["fraction"])
        summary |= {"least_fraction": least["fraction"], "loss": least["loss"]}
    for row in tables["virtual"]:
        if row["method"] == "belady":
            name = f"{row['network']}_{row['fraction']:.2f}"
            summary[f"throughput_{name}"] = row["throughput"]
    return summary


def conclude(run: Run) -> str:
    """Return the equality of bits, and the speed in the least virtual memory."""
    tables = grouped(run.rows, "table")
    trained, virtual = tables.get("trained", []), tables.get("virtual", [])
    texts = []
    if trained:
        hashes = {row["sha256"] for row in trained}
        least = min(row["fraction"] for row in trained)
        bits = "equal bits" if len(hashes) == 1 else f"{len(hashes)} different results"
        texts.append(
            f"The {len(trained)} trainings in {least:.0%} to 100% of the memory have "
            f"{bits}"
        )
    planned = [row for row in virtual if row["method"] == "belady"]
    for name, rows in grouped(planned, "network").items():
        row = min(rows, key=lambda row: row["fraction"])
        texts.append(
            f"{name} activations have {row['throughput']:.0%} of the speed in "
            f"{row['fraction']:.0%} of the memory"
        )
    return "; ".join(texts) + "." if texts else "No training was made."


def draw(path: Path, tables: Tables) -> None:
    """Draw the throughput by memory in virtual time."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in tables["virtual"]:
        xs, ys = series.setdefault(f"{row['network']}, {row['method']}", ([], []))
        xs.append(row["fraction"])
        ys.append(row["throughput"])
    if series:
        figures.curves(
            path / "throughput",
            series,
            x="device memory / memory in which everything fits",
            y="throughput / that without moves",
            dashed=[name for name in series if name.startswith("recomputed")],
        )
