"""Tables, summary and figure of topology.py."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.claims import grouped, matching
from lab.writing import flatten_rows
import numpy as np

from dml.figures import style as figures
from dml.figures.allreduce_times import crossovers
from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import Round
from studies.allreduce.rows import size_text
from studies.topology import allocations
from studies.topology import byteps as topology_byteps
from studies.topology import rows as topology_rows
from studies.topology.tables import volume

FLAT, TWO_LEVELS = "ring", "hierarchical"  # all-reduces

PANELS_PER_ROW = 3


class Arguments(NamedTuple):
    """The arguments of all tables.

    names: names of all-reduces.
    networks: networks by text and number of ranks.
    buffer_bytes: sizes of buffers in bytes, by number of ranks.
    group: members of a group of the hierarchical all-reduce, for each level.
    workers: workers of BytePS.
    machines: networks on which jobs get random places, by text and ranks of a job.
    allocations: number of random places of each job.
    """

    names: Sequence[str]
    networks: Mapping[tuple[str, int], Any]
    buffer_bytes: Mapping[int, Sequence[int]]
    group: Sequence[int]
    workers: int
    machines: Mapping[tuple[str, int], Any]
    allocations: int


Tables = Mapping[str, Sequence[Row]]  # rows of earlier tables by name


def networks(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the parts and the cost of each network that has routers."""
    for (text, p), net in arguments.networks.items():
        if hasattr(net, "report"):
            yield topology_rows.network_row(text, net, p)


def race(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the times of the all-reduces for each network and buffer."""
    names, group = arguments.names, arguments.group
    for (text, p), net in arguments.networks.items():
        for nbytes in arguments.buffer_bytes[p]:
            yield topology_rows.race_row(text, net, p, nbytes, names, group)


def levels(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the gains of two levels on network "hosts"."""
    if {FLAT, TWO_LEVELS} <= set(arguments.names):
        for row in tables["race"]:
            if row["network"] == "hosts":
                yield two_level_gain(arguments.networks["hosts", row["p"]], row)


def jobs(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the all-reduces of jobs on random places of machines."""
    names = [name for name in arguments.names if name in topology_rows.SCHEDULES]
    for (text, p), net in arguments.machines.items():
        sizes, number = arguments.buffer_bytes[p], arguments.allocations
        yield from allocations.rows(text, net, p, sizes, names, number)


def fastest_by_bytes(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the fastest all-reduces by bytes, for each network and p."""
    table = []
    for text, size in dict.fromkeys((row["network"], row["p"]) for row in rows):
        selected = [row for row in rows if (row["network"], row["p"]) == (text, size)]
        lines = {
            name: {row["bytes"]: row[f"{name}_seconds"] for row in selected}
            for name in names
        }
        winners = [f"{selected[0]['best']}"]
        winners += [
            f"{crossover.after} from {volume(crossover.bytes)}"
            for crossover in crossovers(lines)
        ]
        table.append({"network": text, "p": size, "wins": ", ".join(winners)})
    return table


def network_costs(rows: Sequence[Row], reports: Sequence[Row]) -> list[Row]:
    """Return the cost of each network and the time of its fastest all-reduce.

    Times are those of the smallest and of the largest buffer, with their ratios to the
    times on Slim Fly.
    """
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


def two_level_gain(net: Any, row: Row) -> Row:
    """Compare two levels with a ring in host order, and a ring of remote neighbours.

    net: network of hosts.
    row: row of table "race" for this network.
    """
    size, nbytes = row["p"], row["bytes"]
    length = nbytes // topology_rows.ITEMSIZE
    # In this order each rank of the ring sends to another host.
    order = np.argsort(np.arange(size) % net.ranks, kind="stable")
    remote_ring: list[Round] = [
        ring_round._replace(
            source=order[ring_round.source], dest=order[ring_round.dest]
        )
        for ring_round in topology_rows.schedule(FLAT, net, size, length, [0])
    ]
    flat_seconds, levels_seconds = row[f"{FLAT}_seconds"], row[f"{TWO_LEVELS}_seconds"]
    remote_seconds, _ = topology_rows.seconds(remote_ring, net, size)
    return {
        "p": size,
        "hosts": net.number,
        "bytes": nbytes,
        "ring_seconds": flat_seconds,
        "remote_seconds": remote_seconds,
        "hierarchical_seconds": levels_seconds,
        "gain": flat_seconds / levels_seconds,
        "remote_gain": remote_seconds / levels_seconds,
    }


TABLES: dict[str, Callable[[Arguments, Tables], Iterable[Row]]] = {
    "networks": networks,
    "race": race,
    "wins": lambda arguments, tables: fastest_by_bytes(tables["race"], arguments.names),
    "ports": lambda arguments, tables: network_costs(
        tables["race"], tables["networks"]
    ),
    "levels": levels,
    "byteps": lambda arguments, tables: topology_byteps.rows(arguments.workers),
    "allocations": jobs,
}


def totals(tables: Tables) -> dict[str, Any]:
    """Return the summary: winners, seconds, ratios and gains."""
    keys = ("few_ratio", "many_ratio", "cost_per_rank")
    summary = flatten_rows(
        tables["race"], "{key}_{network}_{p}_{bytes}", "best", "seconds"
    )
    summary |= flatten_rows(tables["ports"], "{key}_{network}_{p}", *keys)
    summary |= flatten_rows(tables["levels"], "hierarchical_{key}_{p}_{bytes}", "gain")
    placed = tables["allocations"]
    keys = ("saved", "worse", "gain")
    summary |= flatten_rows(placed, "{key}_{algorithm}_{network}_{p}_{bytes}", *keys)
    for row in tables["byteps"]:
        summary[f"byteps_{row['k']}"] = row["bandwidth_seconds"] / row["paper_seconds"]
    return summary


def draw(path: Path, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw seconds by bytes for each all-reduce; mark the fastest.

    The vertical axis ends above the second slowest all-reduce.
    """
    keys = list(dict.fromkeys((row["network"], row["p"]) for row in rows))
    panel_rows_count = -(-len(keys) // PANELS_PER_ROW)
    sorted_times = [sorted(row[f"{name}_seconds"] for name in names) for row in rows]
    shape = panel_rows_count, PANELS_PER_ROW
    size = (11.5, 0.6 + 3.1 * panel_rows_count)
    with figures.drawing(path, *shape, size=size, sharey=True) as drawing:
        figure, panels = drawing
        for axes, key in zip(panels, keys, strict=False):
            panel_rows = [row for row in rows if (row["network"], row["p"]) == key]
            sizes = [row["bytes"] for row in panel_rows]
            for index, name in enumerate(names):
                seconds = [row[f"{name}_seconds"] for row in panel_rows]
                axes.plot(sizes, seconds, color=f"C{index}", label=name)
                best = [row for row in panel_rows if row["best"] == name]
                points = [r["bytes"] for r in best], [r["seconds"] for r in best]
                axes.plot(*points, "o", color=f"C{index}", markersize=6)
            axes.set(title=f"{key[0]}, p = {key[1]}", xscale="log", yscale="log")
        # The second slowest, or the only one.
        panels[0].set_ylim(top=2 * max(times[-2:][0] for times in sorted_times))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        figure.supxlabel("bytes per rank", fontsize=10)
        figure.supylabel("seconds (dots: the fastest)", fontsize=10)
        figures.legend(figure)


def conclude(run: Run) -> str:
    """Return the fastest all-reduces of the smallest and the largest buffer."""
    races = [row for row in run.rows if row["table"] == "race"]
    if not races:
        return "No all-reduce was compared."
    most = max(row["p"] for row in races)
    sizes = [row["bytes"] for row in races]
    texts = []
    for nbytes in sorted({min(sizes), max(sizes)}):
        rows = matching(races, p=most, bytes=nbytes)
        best = {
            name: ", ".join(row["network"] for row in group)
            for name, group in grouped(rows, "best").items()
        }
        parts = [f"{name} on {networks}" for name, networks in best.items()]
        texts.append(f"for {size_text(nbytes)} {'; '.join(parts)}")
    return f"Fastest of {most:,} ranks, {'; '.join(texts)}."
