"""Columns and titles of the tables of topology.py."""

from collections.abc import Callable, Sequence

from dml.runs.writers import Columns, Row, scaled_cell


def volume(nbytes: float) -> str:
    """Return bytes as text with a unit."""
    for unit in ("B", "KB", "MB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GB"


def volume_of(key: str) -> Callable[[Row], str]:
    """Return a function that formats the bytes of a row."""
    return lambda row: volume(row[key])


NETWORK: Columns = {
    "network": (10, "{network}"),
    "p": (6, "{p}"),
}
BYTES = (8, volume_of("bytes"))


BYTEPS: Columns = {
    "workers": (7, "{n:d}"),
    "spare hosts": (11, "{k:d}"),
    "paper ms": (9, scaled_cell("paper_seconds", 1e3, ".4g")),
    "virtual ms": (10, scaled_cell("bandwidth_seconds", 1e3, ".4g")),
    "virtual/paper": (
        13,
        lambda r: f"{r['bandwidth_seconds'] / r['paper_seconds']:.6f}",
    ),
    "pred/virtual": (12, lambda r: f"{r['predicted_seconds'] / r['seconds']:.4f}"),
    "per spare host": (14, "{spare_share:.1%}"),
    "per worker": (10, "{worker_share:.1%}"),
    "1 + 1/S": (9, "{drained:.6f}"),
    "with α, γ ms": (12, scaled_cell("seconds", 1e3, ".4g")),
}


ALLOCATIONS: Columns = NETWORK | {
    "bytes": BYTES,
    "algorithm": (16, "{algorithm}"),
    "less global": (11, "{saved:.1%}"),
    "worse": (5, "{worse:.0%}"),
    "ms": (9, scaled_cell("seconds", 1e3, ".4g")),
    "gain": (5, "{gain:.2f}"),
    "slower": (6, "{slower:.0%}"),
    "than": (16, "{base}"),
    "most": (6, "{most_saved:.1%}"),
    "least": (7, "{least_saved:.1%}"),
    "global": (9, volume_of("global_bytes")),
    "machine": (7, "{machine:,}"),
}


def columns(names: Sequence[str]) -> dict[str, Columns]:
    """Return the columns of every table, for these all-reduces."""
    return {
        "networks": NETWORK
        | {
            "max ranks": (9, "{ranks:,}"),
            "routers": (7, "{routers:,}"),
            "cables": (7, "{links:,}"),
            "diameter": (8, "{diameter:d}"),
            "bisection": (9, "{bisection:,}"),
            "$ per rank": (10, "{cost_per_rank:,.0f}"),
            "cables per rank": (15, "{cables_per_rank:.2f}"),
            "bisection per rank": (18, "{bisection_per_rank:.3f}"),
        },
        "race": NETWORK
        | {
            "bytes": BYTES,
            "fastest": (16, "{best}"),
            "lead": (6, "{lead:.3g}x"),
            "of optimum": (10, "{share:.1%}"),
            "": (1, lambda row: " " if row["exact"] else "~"),
            **{
                n: (max(len(n), 9), scaled_cell(f"{n}_seconds", 1e3, ".4g"))
                for n in names
            },
        },
        "wins": NETWORK | {"fastest, by bytes": (17, "{wins}")},
        "ports": {
            "network": NETWORK["network"],
            "smallest": (8, volume_of("few_bytes")),
            "ms": (9, scaled_cell("few_seconds", 1e3, ".4g")),
            "of Slim Fly": (11, "{few_ratio:.3f}"),
            "largest": (8, volume_of("many_bytes")),
            "ms ": (9, scaled_cell("many_seconds", 1e3, ".4g")),
            "of Slim Fly ": (11, "{many_ratio:.3f}"),
            "p": NETWORK["p"],
            "diameter": (8, "{diameter:d}"),
            "$ per rank": (10, "{cost_per_rank:,.0f}"),
            "bisection per rank": (18, "{bisection_per_rank:.3f}"),
        },
        "levels": {
            "p": NETWORK["p"],
            "hosts": (6, "{hosts:,}"),
            "bytes": BYTES,
            "ring ms": (9, scaled_cell("ring_seconds", 1e3, ".4g")),
            "remote ring ms": (14, scaled_cell("remote_seconds", 1e3, ".4g")),
            "two levels ms": (13, scaled_cell("hierarchical_seconds", 1e3, ".4g")),
            "gain": (6, "{gain:.3g}"),
            "gain over remote": (16, "{remote_gain:.3g}"),
        },
        "byteps": BYTEPS,
        "allocations": ALLOCATIONS,
    }


TITLES = {
    "networks": "networks for p ranks; bisection: cables between two halves",
    "race": "ms of every all-reduce (~: repeated rounds are extrapolated); of optimum: "
    "the lower bound by latency, cuts and loads, divided by the fastest time of adding "
    "ranks",
    "wins": "fastest all-reduce by bytes",
    "ports": "fastest all-reduce of the smallest and of the largest buffer by network",
    "levels": "two levels on hosts with one network card, compared with one flat ring; "
    "remote ring: each rank sends to another host",
    "byteps": "BytePS: virtual ranks compared with the paper's formula, bandwidth "
    "only; per host: share of the buffer that it adds",
    "allocations": "jobs on random free places of a machine, medians: bytes between "
    "groups that are not sent, and seconds, compared with the all-reduce in column "
    "than; worse, slower: share of the jobs",
}
