"""Tables, summary and figure of topology.py."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.figures.allreduce_times import crossovers
from dml.runs.writers import Row
from dml.types import Round
from studies.topology import byteps as topology_byteps
from studies.topology import rows as topology_rows
from studies.topology.tables import volume

LEVELS = ["ring", "hierarchical"]

ACROSS = 3  # panels in a row of the figure


class Plan(NamedTuple):
    """The arguments of all tables.

    names: all-reduces.
    built: networks by text and number of ranks.
    volumes: sizes of buffers in bytes, by number of ranks.
    group: ranks of a group of the hierarchical all-reduce.
    workers: workers of BytePS.
    """

    names: Sequence[str]
    built: Mapping[tuple[str, int], Any]
    volumes: Mapping[int, Sequence[int]]
    group: int
    workers: int


Kept = Mapping[str, Sequence[Row]]  # rows of earlier tables by name


def networks(plan: Plan, kept: Kept) -> Iterator[Row]:
    for (text, p), net in plan.built.items():
        if hasattr(net, "report"):
            yield topology_rows.described(text, net, p)


def evaluate_networks(plan: Plan, kept: Kept) -> Iterator[Row]:
    for (text, p), net in plan.built.items():
        for nbytes in plan.volumes[p]:
            yield topology_rows.evaluated(text, net, p, nbytes, plan.names, plan.group)


def levels(plan: Plan, kept: Kept) -> Iterator[Row]:
    if set(LEVELS) <= set(plan.names):
        for row in kept["race"]:
            if row["network"] == "hosts":
                yield two_level_gain(plan.built["hosts", row["p"]], row)


def fastest_by_bytes(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the fastest all-reduce by bytes, for each network and p."""
    table = []
    for text, size in dict.fromkeys((row["network"], row["p"]) for row in rows):
        selected = [row for row in rows if (row["network"], row["p"]) == (text, size)]
        lines = {
            name: {row["bytes"]: row[f"{name}_seconds"] for row in selected}
            for name in names
        }
        winners = [f"{selected[0]['best']}"]
        winners += [f"{c.after} from {volume(c.bytes)}" for c in crossovers(lines)]
        table.append({"network": text, "p": size, "wins": ", ".join(winners)})
    return table


def network_costs(rows: Sequence[Row], reports: Sequence[Row]) -> list[Row]:
    """Return the cost of each network and the time of its fastest all-reduce."""
    table = []
    for report in reports:
        key = report["network"], report["p"]
        selected = [row for row in rows if (row["network"], row["p"]) == key]
        few, many = selected[0], selected[-1]
        table.append(
            report
            | {"few_bytes": few["bytes"], "few_seconds": few["seconds"]}
            | {"many_bytes": many["bytes"], "many_seconds": many["seconds"]}
        )
    for row in table:
        flies = [r for r in table if r["network"] == "slim_fly" and r["p"] == row["p"]]
        for key in ("few", "many"):
            row[f"{key}_ratio"] = (
                row[f"{key}_seconds"] / flies[0][f"{key}_seconds"] if flies else None
            )
    return table


def two_level_gain(net: Any, known: Row) -> Row:
    """Compare two levels with a ring in host order, and a ring of remote neighbours."""
    size, nbytes = known["p"], known["bytes"]
    length = nbytes // topology_rows.ITEMSIZE
    # In this order each rank of the ring sends to another host.
    order = np.argsort(np.arange(size) % net.ranks, kind="stable")

    def ring() -> Iterator[Round]:
        for one in topology_rows.schedule("ring", net, size, length, 0):
            yield one._replace(source=order[one.source], dest=order[one.dest])

    flatten_rows, levels = (known[f"{name}_seconds"] for name in LEVELS)
    dealt, _ = topology_rows.seconds(list(ring()), net, size)
    return {
        "p": size,
        "hosts": net.number,
        "bytes": nbytes,
        "ring_seconds": flatten_rows,
        "dealt_seconds": dealt,
        "hierarchical_seconds": levels,
        "gain": flatten_rows / levels,
        "dealt_gain": dealt / levels,
    }


TABLES: dict[str, Callable[[Plan, Kept], Iterable[Row]]] = {
    "networks": networks,
    "race": evaluate_networks,
    "wins": lambda plan, kept: fastest_by_bytes(kept["race"], plan.names),
    "ports": lambda plan, kept: network_costs(kept["race"], kept["networks"]),
    "levels": levels,
    "byteps": lambda plan, kept: topology_byteps.rows(plan.workers),
}


def totals(kept: Kept) -> dict[str, Any]:
    """Return the summary: winners, seconds, ratios and gains."""
    ratios = ("few_ratio", "many_ratio", "cost_a_rank")
    summary = flatten_rows(
        kept["race"], "{key}_{network}_{p}_{bytes}", "best", "seconds"
    )
    summary |= flatten_rows(kept["ports"], "{key}_{network}_{p}", *ratios)
    summary |= flatten_rows(kept["levels"], "hierarchical_{key}_{p}_{bytes}", "gain")
    for row in kept["byteps"]:
        summary[f"byteps_{row['k']}"] = row["bandwidth_seconds"] / row["paper_seconds"]
    return summary


def draw(path: Path, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw seconds by bytes for each all-reduce; mark the fastest.

    The vertical axis ends above the second slowest all-reduce.
    """
    keys = list(dict.fromkeys((row["network"], row["p"]) for row in rows))
    down = -(-len(keys) // ACROSS)
    slowest = [sorted(row[f"{name}_seconds"] for name in names) for row in rows]
    size = (11.5, 0.6 + 3.1 * down)
    with figures.drawing(path, down, ACROSS, size=size, sharey=True) as drawing:
        figure, panels = drawing
        for axes, key in zip(panels, keys, strict=False):
            panel_rows = [row for row in rows if (row["network"], row["p"]) == key]
            sizes = [row["bytes"] for row in panel_rows]
            for number, name in enumerate(names):
                seconds = [row[f"{name}_seconds"] for row in panel_rows]
                axes.plot(sizes, seconds, color=f"C{number}", label=name)
                best = [row for row in panel_rows if row["best"] == name]
                points = [r["bytes"] for r in best], [r["seconds"] for r in best]
                axes.plot(*points, "o", color=f"C{number}", markersize=6)
            axes.set(title=f"{key[0]}, p = {key[1]}", xscale="log", yscale="log")
        panels[0].set_ylim(top=2 * max(seconds[-2:][0] for seconds in slowest))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        figure.supxlabel("bytes per rank", fontsize=10)
        figure.supylabel("seconds (dots: the fastest)", fontsize=10)
        figures.legend(figure)
