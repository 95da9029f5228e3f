"""What the times of all-reduces on networks show: crossovers, prices, gains."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import topology_rows
from topology_tables import volume

from dml.metrics.races import crossovers
from dml.metrics.writers import Row
from dml.types import Round

LEVELS = ["ring", "hierarchical"]


def crossed(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Find from how many bytes on which all-reduce is the fastest, by network and p."""
    found = []
    for text, size in dict.fromkeys((row["network"], row["p"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["p"]) == (text, size)]
        lines = {
            name: {row["bytes"]: row[f"{name}_seconds"] for row in mine}
            for name in names
        }
        where = [f"{mine[0]['best']}"]
        where += [f"{c.after} from {volume(c.bytes)}" for c in crossovers(lines)]
        found.append({"network": text, "p": size, "wins": ", ".join(where)})
    return found


def against(rows: Sequence[Row], reports: Sequence[Row]) -> list[Row]:
    """Compare what networks cost with how fast the fastest all-reduce is on them."""
    found = []
    for report in reports:
        key = report["network"], report["p"]
        mine = [row for row in rows if (row["network"], row["p"]) == key]
        few, many = mine[0], mine[-1]
        found.append(
            report
            | {"few_bytes": few["bytes"], "few_seconds": few["seconds"]}
            | {"many_bytes": many["bytes"], "many_seconds": many["seconds"]}
        )
    for row in found:
        flies = [r for r in found if r["network"] == "slim_fly" and r["p"] == row["p"]]
        for key in ("few", "many"):
            row[f"{key}_ratio"] = (
                row[f"{key}_seconds"] / flies[0][f"{key}_seconds"] if flies else None
            )
    return found


def gained(net: Any, known: Row) -> Row:
    """Beside a row of hosts, time a ring whose ranks are dealt out over them."""
    size, nbytes = known["p"], known["bytes"]
    length = nbytes // topology_rows.ITEMSIZE
    # That ring goes on to another host at every rank.
    order = np.argsort(np.arange(size) % net.ranks, kind="stable")

    def ring() -> Iterator[Round]:
        for one in topology_rows.schedule("ring", net, size, length, 0):
            yield one._replace(source=order[one.source], dest=order[one.dest])

    flat, levels = (known[f"{name}_seconds"] for name in LEVELS)
    dealt, _ = topology_rows.seconds(list(ring()), net, size)
    return {
        "p": size,
        "hosts": net.number,
        "bytes": nbytes,
        "ring_seconds": flat,
        "dealt_seconds": dealt,
        "hierarchical_seconds": levels,
        "gain": flat / levels,
        "dealt_gain": dealt / levels,
    }
