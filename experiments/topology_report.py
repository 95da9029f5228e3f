"""The tables of `topology.py`, each made of the tables before it, and its summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import topology_byteps
import topology_rows
from topology_tables import volume

from dml.metrics.races import crossovers
from dml.metrics.writers import Row
from dml.types import Round

LEVELS = ["ring", "hierarchical"]


class Plan(NamedTuple):
    """The values of the flags."""

    names: Sequence[str]  # of all-reduces
    built: Mapping[tuple[str, int], Any]  # networks by text and number of ranks
    volumes: Mapping[int, Sequence[int]]  # bytes by number of ranks
    group: int
    workers: int


Kept = Mapping[str, Sequence[Row]]  # the rows of the tables before


def networks(plan: Plan, kept: Kept) -> Iterator[Row]:
    for (text, p), net in plan.built.items():
        if hasattr(net, "report"):
            yield topology_rows.described(text, net, p)


def race(plan: Plan, kept: Kept) -> Iterator[Row]:
    for (text, p), net in plan.built.items():
        for nbytes in plan.volumes[p]:
            yield topology_rows.raced(text, net, p, nbytes, plan.names, plan.group)


def levels(plan: Plan, kept: Kept) -> Iterator[Row]:
    if set(LEVELS) <= set(plan.names):
        for row in kept["race"]:
            if row["network"] == "hosts":
                yield gained(plan.built["hosts", row["p"]], row)


def crossed(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the fastest all-reduce by bytes, for each network and p."""
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
    """Return the cost of each network beside the time of its fastest all-reduce."""
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
    """Return a row of hosts, and the time of a ring that changes host at each rank."""
    size, nbytes = known["p"], known["bytes"]
    length = nbytes // topology_rows.ITEMSIZE
    # Each rank of that ring sends to another host.
    order = np.argsort(np.arange(size) % net.ranks, kind="stable")

    def ring() -> Iterator[Round]:
        for one in topology_rows.schedule("ring", net, size, length, 0):
            yield one._replace(source=order[one.source], dest=order[one.dest])

    flat, levels = (known[f"{name}_seconds"] for name in LEVELS)
    dealt, _ = topology_rows.seconds(ring(), net, size)
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


TABLES: dict[str, Callable[[Plan, Kept], Iterable[Row]]] = {
    "networks": networks,
    "race": race,
    "wins": lambda plan, kept: crossed(kept["race"], plan.names),
    "ports": lambda plan, kept: against(kept["race"], kept["networks"]),
    "levels": levels,
    "byteps": lambda plan, kept: topology_byteps.rows(plan.workers),
}


def totals(kept: Kept) -> dict[str, Any]:
    """Return the flat summary: winners, seconds, ratios and gains."""
    found: dict[str, Any] = {}
    for row in kept["race"]:
        where = f"{row['network']}_{row['p']}_{row['bytes']}"
        found |= {f"best_{where}": row["best"], f"seconds_{where}": row["seconds"]}
    for row in kept["ports"]:
        where = f"{row['network']}_{row['p']}"
        found |= {f"{key}_{where}": row[key] for key in ("few_ratio", "many_ratio")}
        found[f"cost_a_rank_{where}"] = row["cost_a_rank"]
    for row in kept["levels"]:
        found[f"hierarchical_gain_{row['p']}_{row['bytes']}"] = row["gain"]
    for row in kept["byteps"]:
        found[f"byteps_{row['k']}"] = row["bandwidth_seconds"] / row["paper_seconds"]
    return found
