"""The tables of `scaling.py`: rows in, columns under a title out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import scaling_bert
from scaling_bert import PUBLISHED
from scaling_model import BACKWARD, BY_HAND, Training

from dml.metrics.writers import Row, Writer, table
from dml.wire.cost import Rates

Column = tuple[int, Callable[[Row], str]]


def speedup_of(name: str) -> Column:
    return max(6, len(name)), lambda row: f"{row[f'{name}_speedup']:.4g}"


def minutes_of(size: int) -> Column:
    return 9, lambda row: f"{row[f'minutes_{size}']:.1f} min"


def share_of(key: str, sign: str = "") -> Column:
    return 10, lambda row: f"{row[key]:{sign}.1%}"


TABLES: dict[str, dict[str, Column]] = {
    "measured": {
        "algorithm": (16, lambda row: row["algorithm"]),
        "gradient ms": (11, lambda row: f"{row['gradient_seconds'] * 1e3:.3f}"),
        "wire ms": (8, lambda row: f"{row['wire_seconds'] * 1e3:.3f}"),
        "predicted ms": (12, lambda row: f"{row['predicted_seconds'] * 1e3:.3f}"),
        "measured ms": (11, lambda row: f"{row['seconds'] * 1e3:.3f}"),
        "pred/meas": (9, lambda row: f"{ratio(row):.3f}"),
    },
    "prediction": {
        "p": (5, lambda row: f"{row['p']}"),
        "overlap": (7, lambda row: "yes" if row["overlap"] else "no"),
        "gradient ms": (11, lambda row: f"{row['gradient_seconds'] * 1e3:.3f}"),
        "step ms": (9, lambda row: f"{row['step_seconds'] * 1e3:.3f}"),
        "best": (16, lambda row: row["best"]),
        "speed-up": (8, lambda row: f"{row['speedup']:.4g}"),
        "of linear": (9, lambda row: f"{row['efficiency']:.1%}"),
        "binds": (9, lambda row: row["binds"]),
        **{name: speedup_of(name) for name in (*BY_HAND, "native")},
    },
    "bert": {
        "job": (22, lambda row: row["job"]),
        **{f"{size} V100": minutes_of(size) for size in PUBLISHED},
        **{f"eff. {size}": share_of(f"efficiency_{size}") for size in (1024, 1472)},
        **{f"error {size}": share_of(f"error_{size}", "+") for size in (1024, 1472)},
    },
}


def ratio(row: Row) -> float:
    return row["predicted_seconds"] / row["seconds"]


@contextmanager
def shown(name: str, title: str) -> Iterator[Writer]:
    """Print a table's rows under its title, which an empty one does not need."""
    with table(TABLES[name]) as inner:
        titled: list[bool] = []

        def row(row: Row) -> None:
            if not titled:
                print(f"\n{title}")
                titled.append(True)
            inner.row(row)

        yield Writer(row, inner.summary)


def titles(training: Training, rates: Rates) -> dict[str, str]:
    """Say of each table what it assumes."""
    kind = "over all workers" if training.strong else "a worker"
    return {
        "prediction": f"predicted speed-up: {training.parameters:,} parameters of "
        f"{training.itemsize} bytes, {training.batch} examples {kind}, a gradient of "
        f"{training.gradient(1) * 1e3:.3g} ms alone;\nalpha {rates.alpha:.3g} s a "
        f"message, beta {rates.beta:.3g} s and gamma {rates.gamma:.3g} s a byte, "
        f"{training.host} workers a host; overlap: with the backward pass, "
        f"{BACKWARD:.0%} of a gradient",
        "measured": "steps on the ranks that are here, gradient and all-reduce",
        "bert": f"BERT-large by V100, efficiency from {min(PUBLISHED)} on; "
        f"{scaling_bert.against_one()}\n{scaling_bert.ASSUMED}",
    }
