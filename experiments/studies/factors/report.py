"""Tables, summary, conclusion and figure of sufficient_factors.py."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.wire.costs.factors import WORDS, Nodes, choose, last_factor_nodes
from studies.factors.layers import Layer, Network

LETTERS = {"factors": "F", "allreduce": "A", "server": "S"}
SUMS = ("server", "allreduce")
TITLES = {
    "example": "Words of a node: a layer of 4096 x 4096, 32 rows, 8 workers",
    "layers": "Cheapest exchange by P nodes: F factors, A all-reduce, S servers; with "
    "servers on the workers, and on as many further nodes",
    "throughput": "Updates on {nodes} virtual nodes; speed-up over one node",
}


def columns(nodes: Sequence[int]) -> dict[str, Columns]:
    """Return the columns of all tables.

    Args:
      nodes: Numbers of nodes of the choices.
    """
    by_nodes = " ".join(map(str, nodes))
    width = max(len(by_nodes), 7)
    return {
        "example": {
            "role": (18, "{role}"),
            "counted": (11, "{counted:,}"),
            "formula": (11, "{formula:,.0f}"),
            "published": (11, scaled_cell("published", 1e-6, "g")),
        },
        "layers": {
            "network": (10, "{network}"),
            "layer": (12, "{layer}"),
            "layers": (6, "{count}"),
            "factors to P": (12, "{last_nodes}"),
            f"P: {by_nodes}": (width + 3, lambda row: spread(row["both"], nodes)),
            "further": (width, lambda row: spread(row["apart"], nodes)),
            "kind": (11, "{kind}"),
            "K": (8, "{rows:,}"),
            "M": (6, "{inputs}"),
            "N": (6, "{outputs}"),
        },
        "throughput": {
            "network": (10, "{network}"),
            "Gb/s": (5, "{gbps:g}"),
            "scheme": (9, "{scheme}"),
            "ms": (9, scaled_cell("seconds", 1e3, ".1f")),
            "speed-up": (8, "{speedup:.2f}"),
            "words sent": (15, "{words_sent:,}"),
            "by factors": (10, "{by_factors}"),
            "examples/s": (10, "{examples_per_second:.1f}"),
        },
    }


def spread(choices: Sequence[str], nodes: Sequence[int]) -> str:
    """Return the letters of choices, each below its number of nodes."""
    return " ".join(
        f"{LETTERS[choice]:>{len(str(count))}}"
        for choice, count in zip(choices, nodes, strict=True)
    )


def layer_rows(networks: Mapping[str, Network], nodes: Sequence[int]) -> Iterator[Row]:
    """Yield the cheapest exchange of each layer; equal layers have one row.

    Args:
      networks: Networks by name.
      nodes: Numbers of nodes.
    """
    for name, network in networks.items():
        counts = Counter(layer[1:] for layer in network.layers)
        seen: set[Any] = set()
        for layer in network.layers:
            if layer[1:] in seen:
                continue
            seen.add(layer[1:])
            sizes = layer.sizes(network.examples)
            yield {
                "table": "layers",
                "network": name,
                "layer": layer.name,
                "count": counts[layer[1:]],
                "kind": layer.kind,
                **sizes._asdict(),
                "last_nodes": None
                if layer.kind == "table"
                else last_factor_nodes(sizes),
                "nodes": list(nodes),
                "both": [choice(network, layer, Nodes(p, p)) for p in nodes],
                "apart": [choice(network, layer, Nodes(p, p, False)) for p in nodes],
            }


def choice(network: Network, layer: Layer, nodes: Nodes) -> str:
    """Return the cheapest exchange of a layer; a table has no factors."""
    schemes = [name for name in WORDS if name != "factors" or layer.kind != "table"]
    return choose(layer.sizes(network.examples), nodes, schemes)


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary."""
    summary: Row = {
        f"words_{row['role'].replace(' ', '_')}": row["counted"]
        for row in matching(rows, table="example")
    }
    measured = matching(rows, table="throughput")
    for row in measured:
        key = f"{row['network']}_{row['scheme']}_{row['gbps']:g}"
        summary[f"speedup_{key}"] = row["speedup"]
    for network in dict.fromkeys(row["network"] for row in measured):
        summary[f"{network}_pays_up_to_gbps"] = pays_up_to(measured, network)
    return summary


def pays_up_to(rows: Sequence[Row], network: str) -> float:
    """Return the most Gb/s at which hybrid is faster than both sums; 0: none."""
    paying = [0.0]
    for gbps, same in grouped(matching(rows, network=network), "gbps").items():
        seconds = {row["scheme"]: row["seconds"] for row in same}
        if seconds["hybrid"] < min(seconds[name] for name in SUMS):
            paying.append(gbps)
    return max(paying)


def conclude(run: Run) -> str:
    """Return the conclusion of a run."""
    summary = run.summary
    paying = {
        name.removesuffix("_pays_up_to_gbps"): value
        for name, value in summary.items()
        if name.endswith("_pays_up_to_gbps")
    }
    parts = [
        f"for {name} " + (f"up to {value:g} Gb/s" if value else "at no bandwidth")
        for name, value in paying.items()
    ]
    words = summary["words_worker_by_factors"] / 1e6
    saving = ", ".join(parts)
    return f"A worker by factors has {words:.2f} M words. Factors save time {saving}."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the speed-up by bandwidth, with a panel for each network."""
    panels = []
    measured = matching(rows, table="throughput")
    for name, same in grouped(measured, "network").items():
        series = {
            scheme: (
                [row["gbps"] for row in curve],
                [row["speedup"] for row in curve],
            )
            for scheme, curve in grouped(same, "scheme").items()
        }
        title = f"{name}, {same[0]['nodes']} nodes"
        panels.append(figures.Panel(title, series, "Gb/s", "speed-up"))
    figures.panels(path, panels, log="x")
