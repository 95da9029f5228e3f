"""Table, summary and figure of pipeline_templates.py."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, cell, collector
from dml.wire.plans.pipeline.templates import (
    Pipeline,
    Templates,
    batch_shares,
    changes,
    instantiate,
    moves,
    reinstantiate,
    speed,
)

COLUMNS: Columns = {
    "nodes": (5, "{nodes}"),
    "died": (4, "{died}"),
    "pipelines": (22, lambda row: "+".join(map(str, row["sizes"]))),
    "efficiency": (10, "{efficiency:.0%}"),
    "slots": (6, "{slots:.2f}"),
    "changed": (7, "{changed}"),
    "moved": (5, "{moved}"),
    "microbatches": (22, lambda row: "+".join(map(str, row["shares"]))),
}


def failures(
    templates: Templates, nodes: int, microbatches: int, seed: int
) -> Iterator[Row]:
    """Yield a row for the start and for each failure of a node, in random order.

    Args:
      templates: Sizes of pipelines.
      nodes: Number of nodes at the start.
      microbatches: Number of microbatches of an update, over all pipelines.
      seed: Random seed of the order of failures.
    """
    pipelines = instantiate(templates, range(nodes))
    yield facts(pipelines, microbatches)
    order = np.random.default_rng(seed).permutation(nodes).tolist()
    for dead in order[: nodes - templates.fewest_nodes]:
        before, pipelines = pipelines, reinstantiate(templates, pipelines, [dead])
        yield facts(pipelines, microbatches) | {
            "died": dead,
            "changed": changes(before, pipelines),
            "moved": moves(before, pipelines),
            "changed_pipelines": [one not in before for one in pipelines],
        }


def facts(pipelines: Sequence[Pipeline], microbatches: int) -> Row:
    """Return sizes, shares of microbatches, and the time of an update.

    A slot is the time of one microbatch on one node. An update takes as long as its
    slowest pipeline; its efficiency is relative to nodes without a bubble.
    """
    sizes = [len(one) for one in pipelines]
    even = max(1, microbatches // len(sizes))
    shares = batch_shares([speed(size, even) for size in sizes], microbatches)
    slots = max(
        (share + size - 1) / size for size, share in zip(sizes, shares, strict=True)
    )
    return {
        "nodes": sum(sizes),
        "died": None,
        "sizes": sizes,
        "shares": shares,
        "changed": 0,
        "moved": 0,
        "changed_pipelines": [False] * len(sizes),
        "slots": slots,
        "efficiency": microbatches / (sum(sizes) * slots),
    }


def summarize(templates: Templates, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the flat summary."""
    failed = [row for row in rows if row["died"] is not None]
    return {
        "least": templates.least,
        "most": templates.most,
        "templates": len(templates.sizes),
        "nodes_at_the_end": rows[-1]["nodes"],
        "changed_at_most": max((row["changed"] for row in failed), default=0),
        "moved_nodes": sum(row["moved"] for row in failed),
        "least_efficiency": min(row["efficiency"] for row in rows),
    }


def conclude(run: Run) -> str:
    """Return the conclusion of a run."""
    summary = run.summary
    return cell(
        summary,
        "Templates of {least} to {most} nodes use all nodes down to "
        "{nodes_at_the_end}; a failure changes at most {changed_at_most} pipelines.",
    )


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collector(lambda rows, _: draw(path, rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the pipelines of each number of nodes as stacked bars."""
    size = (max(6.4, 0.45 * len(rows)), 4.2)
    with figures.drawing(path, size=size) as (figure, (axes,)):
        for place, row in enumerate(rows):
            bottom = 0
            both = zip(row["sizes"], row["changed_pipelines"], strict=True)
            for stages, changed in sorted(both, reverse=True):
                look: dict[str, Any] = {"color": "C1" if changed else "C0"}
                axes.bar(place, stages, 0.8, bottom, edgecolor="white", **look)
                text = {"ha": "center", "va": "center", "color": "white", "fontsize": 8}
                axes.text(place, bottom + stages / 2, str(stages), **text)
                bottom += stages
        axes.bar(0, 0, color="C0", label="unchanged pipeline")
        axes.bar(0, 0, color="C1", label="changed by the failure")
        axes.set_xticks(range(len(rows)), [str(row["nodes"]) for row in rows])
        axes.set(xlabel="nodes, after one failure each", ylabel="nodes in pipelines")
        axes.grid(False)
        figures.legend(figure, "outside upper center", ncols=2)
