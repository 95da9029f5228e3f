"""What `topology.py` says: tables, each made of those before it, and the summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import topology_byteps
import topology_rows
from topology_findings import LEVELS, against, crossed, gained

from dml.metrics.writers import Row


class Plan(NamedTuple):
    """What the flags ask for."""

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


TABLES: dict[str, Callable[[Plan, Kept], Iterable[Row]]] = {
    "networks": networks,
    "race": race,
    "wins": lambda plan, kept: crossed(kept["race"], plan.names),
    "ports": lambda plan, kept: against(kept["race"], kept["networks"]),
    "levels": levels,
    "byteps": lambda plan, kept: topology_byteps.rows(plan.workers),
}


def totals(kept: Kept) -> dict[str, Any]:
    """Return what the summary says, flat: winners, seconds, ratios, gains."""
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
