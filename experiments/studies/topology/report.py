"""The tables of `topology.py`, its summary and its figure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lab.writing import flat

from dml.figures import style as figures
from dml.figures.races import crossovers
from dml.runs.writers import Row
from dml.types import Round
from studies.topology import byteps as topology_byteps
from studies.topology import rows as topology_rows
from studies.topology.tables import volume

LEVELS = ["ring", "hierarchical"]

ACROSS = 3  # panels in a row of the figure


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
                yield two_level_gain(plan.built["hosts", row["p"]], row)


def fastest_by_bytes(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
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


def network_costs(rows: Sequence[Row], reports: Sequence[Row]) -> list[Row]:
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


def two_level_gain(net: Any, known: Row) -> Row:
    """Return a row of hosts, and the time of a ring that changes host at each rank."""
    size, nbytes = known["p"], known["bytes"]
    length = nbytes // topology_rows.ITEMSIZE
    # Each rank of that ring sends to another host.
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


TABLES: dict[str, Callable[[Plan, Kept], Iterable[Row]]] = {
    "networks": networks,
    "race": race,
    "wins": lambda plan, kept: fastest_by_bytes(kept["race"], plan.names),
    "ports": lambda plan, kept: network_costs(kept["race"], kept["networks"]),
    "levels": levels,
    "byteps": lambda plan, kept: topology_byteps.rows(plan.workers),
}


def totals(kept: Kept) -> dict[str, Any]:
    """Return the summary: winners, seconds, ratios and gains."""
    ratios = ("few_ratio", "many_ratio", "cost_a_rank")
    found = flat(kept["race"], "{key}_{network}_{p}_{bytes}", "best", "seconds")
    found |= flat(kept["ports"], "{key}_{network}_{p}", *ratios)
    found |= flat(kept["levels"], "hierarchical_{key}_{p}_{bytes}", "gain")
    for row in kept["byteps"]:
        found[f"byteps_{row['k']}"] = row["bandwidth_seconds"] / row["paper_seconds"]
    return found


def draw(path: Path, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw a line for each all-reduce, up to the slowest but one; mark the fastest."""
    keys = list(dict.fromkeys((row["network"], row["p"]) for row in rows))
    down = -(-len(keys) // ACROSS)
    slowest = [sorted(row[f"{name}_seconds"] for name in names) for row in rows]
    size = (11.5, 0.6 + 3.1 * down)
    with figures.drawing(path, down, ACROSS, size=size, sharey=True) as drawing:
        figure, panels = drawing
        for axes, key in zip(panels, keys, strict=False):
            some = [row for row in rows if (row["network"], row["p"]) == key]
            sizes = [row["bytes"] for row in some]
            for number, name in enumerate(names):
                took = [row[f"{name}_seconds"] for row in some]
                axes.plot(sizes, took, color=f"C{number}", label=name)
                best = [row for row in some if row["best"] == name]
                points = [r["bytes"] for r in best], [r["seconds"] for r in best]
                axes.plot(*points, "o", color=f"C{number}", markersize=6)
            axes.set(title=f"{key[0]}, p = {key[1]}", xscale="log", yscale="log")
        panels[0].set_ylim(top=2 * max(took[-2:][0] for took in slowest))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        figure.supxlabel("bytes a rank", fontsize=10)
        figure.supylabel("seconds (dots: the fastest)", fontsize=10)
        figures.legend(figure)
