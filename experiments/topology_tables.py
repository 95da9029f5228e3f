"""The tables of `topology.py`: rows in, columns out; and bytes with a unit."""

from collections.abc import Callable, Sequence

from dml.metrics.writers import Row

Column = tuple[int, Callable[[Row], str]]


def volume(nbytes: float) -> str:
    """Write bytes with a unit."""
    for unit in ("B", "KB", "MB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GB"


def milliseconds(key: str, width: int = 9) -> Column:
    return max(width, 9), lambda row: f"{row[key] * 1e3:.4g}"


def number(key: str, form: str, width: int = 9) -> Column:
    return width, lambda row: format(row[key], form)


def ratio(key: str) -> Column:
    return 11, lambda row: "-" if row[key] is None else f"{row[key]:.3f}"


NETWORK: dict[str, Column] = {
    "network": (10, lambda row: row["network"]),
    "p": (6, lambda row: f"{row['p']}"),
}
BYTES: Column = (8, lambda row: volume(row["bytes"]))


BYTEPS: dict[str, Column] = {
    "workers": number("n", "d", 7),
    "spare": number("k", "d", 5),
    "spare's share": number("spare_share", ".1%", 13),
    "worker's share": number("worker_share", ".1%", 14),
    "paper ms": milliseconds("paper_seconds"),
    "running ms": milliseconds("bandwidth_seconds", 10),
    "run/paper": (
        9,
        lambda r: f"{r['bandwidth_seconds'] / r['paper_seconds']:.6f}",
    ),
    "1 + 1/S": number("drained", ".6f"),
    "with α, γ ms": milliseconds("seconds", 12),
    "pred/run": (8, lambda r: f"{r['predicted_seconds'] / r['seconds']:.4f}"),
}


def columns(names: Sequence[str]) -> dict[str, dict[str, Column]]:
    """Return every table's columns, for these all-reduces."""
    return {
        "networks": NETWORK
        | {
            "holds": number("ranks", ","),
            "routers": number("routers", ",", 7),
            "cables": number("links", ",", 7),
            "diameter": number("diameter", "d", 8),
            "bisection": number("bisection", ","),
            "$ a rank": number("cost_a_rank", ",.0f", 8),
            "cables a rank": number("cables_a_rank", ".2f", 13),
            "bisection a rank": number("bisection_a_rank", ".3f", 16),
        },
        "race": NETWORK
        | {
            "bytes": BYTES,
            "fastest": (16, lambda row: row["best"]),
            "lead": (6, lambda row: f"{row['lead']:.3g}x"),
            **{name: milliseconds(f"{name}_seconds", len(name)) for name in names},
            "": (1, lambda row: " " if row["exact"] else "~"),
        },
        "wins": NETWORK | {"fastest, by bytes": (17, lambda row: row["wins"])},
        "ports": NETWORK
        | {
            "diameter": number("diameter", "d", 8),
            "$ a rank": number("cost_a_rank", ",.0f", 8),
            "bisection a rank": number("bisection_a_rank", ".3f", 16),
            "few": (8, lambda row: volume(row["few_bytes"])),
            "ms": milliseconds("few_seconds"),
            "of Slim Fly": ratio("few_ratio"),
            "many": (8, lambda row: volume(row["many_bytes"])),
            "ms ": milliseconds("many_seconds"),
            "of Slim Fly ": ratio("many_ratio"),
        },
        "levels": {
            "p": NETWORK["p"],
            "hosts": number("hosts", ",", 6),
            "bytes": BYTES,
            "ring ms": milliseconds("ring_seconds"),
            "ring dealt out ms": milliseconds("dealt_seconds", 17),
            "two levels ms": milliseconds("hierarchical_seconds", 13),
            "gain": number("gain", ".3g", 6),
            "gain over dealt": number("dealt_gain", ".3g", 15),
        },
        "byteps": BYTEPS,
    }


TITLES = {
    "networks": "networks that hold p ranks; bisection: cables between halves",
    "race": "ms of every all-reduce (~: rounds that repeat are extrapolated)",
    "wins": "where each wins",
    "ports": "fastest all-reduce on networks for as many ranks, few bytes and many",
    "levels": "two levels on hosts of ranks with one card each, against one flat ring",
    "byteps": "BytePS: running virtual ranks against its paper's time, bandwidth alone",
}
