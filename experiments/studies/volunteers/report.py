"""Tables, summary, conclusion and figures of volunteers.py."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row
from studies.volunteers import drops, formulas, regrets
from studies.volunteers.training import (
    Task,
    centre_rows,
    first,
    policy_rows,
    volunteer_rows,
)

ROUNDS = 4  # matchmakings of a case
Tables = Mapping[str, Sequence[Row]]  # rows of earlier tables by name


class Arguments(NamedTuple):
    """The settings of all tables.

    Attributes:
      task: The training.
      compared: Number of volunteers in the comparison of deadlines.
      constants: Constant deadlines in seconds.
      most_rounds: Largest number of rounds in the comparison of deadlines.
      groups: Number of groups of each distribution of arrivals.
      matchmakings: Number of seeded matchmakings.
    """

    task: Task
    compared: int
    constants: Sequence[float]
    most_rounds: int
    groups: int
    matchmakings: int


def regret_rows(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    spreads = arguments.task.rules.spreads
    return regrets.rows(arguments.groups, spreads, arguments.task.seed)


def balance_rows(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    megabytes = arguments.task.rules.nbytes / 1e6
    bandwidth = arguments.task.traits.bandwidth
    return formulas.balance_rows(megabytes, bandwidth, arguments.task.seed)


def broadcast_rows(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    megabytes = arguments.task.rules.nbytes / 1e6
    bandwidth = arguments.task.traits.bandwidth
    return formulas.broadcast_rows(megabytes, bandwidth, arguments.task.seed)


def matchmaking_rows(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Yield the statistics of seeded matchmakings, each followed by an average."""
    first, count = arguments.task.seed, -(-arguments.matchmakings // ROUNDS)
    yield drops.measure(range(first, first + count), ROUNDS, values=8)


def data_centre_rows(arguments: Arguments, tables: Tables) -> Iterable[Row]:
    """Return the rows of the data centre; `reached` marks the first at the target."""
    evaluations = tables["volunteers"][-1]["evaluations"]
    rows = centre_rows(arguments.task, evaluations)
    time = first(rows, arguments.task)
    return [row | {"reached": row["hours"] == time} for row in rows]


TABLES: dict[str, Callable[[Arguments, Tables], Iterable[Row]]] = {
    "deadlines": regret_rows,
    "balance": balance_rows,
    "broadcast": broadcast_rows,
    "square_cube": lambda arguments, tables: formulas.square_cube_rows(),
    "matchmaking": matchmaking_rows,
    "volunteers": lambda arguments, tables: volunteer_rows(arguments.task),
    "data_centre": data_centre_rows,
    "policies": lambda arguments, tables: policy_rows(
        arguments.task,
        arguments.compared,
        arguments.constants,
        arguments.most_rounds,
    ),
}


def summarize(tables: Tables, task: Task) -> dict[str, Any]:
    """Return the flat summary."""
    last = tables["volunteers"][-1]
    reached = [row for row in tables["data_centre"] if row["reached"]]
    centre = reached[0] if reached else tables["data_centre"][-1]
    summary = {
        "peers": task.peers,
        "target": task.target,
        "regret": regrets.worst(tables["deadlines"], "regret"),
        "regret_of_one_constant": regrets.worst(tables["deadlines"], "one_regret"),
        "matchmakings": tables["matchmaking"][0]["matchmakings"],
        "matchmaking_failures": tables["matchmaking"][0]["failures"],
        "reached": last["accuracy"] >= task.target,
        "centre_reached": bool(reached),
    }
    keys = ("hours", "evaluations", "accuracy", "megabytes")
    summary |= {f"volunteers_{key}": last[key] for key in (*keys, "lost", "consensus")}
    summary |= {f"centre_{key}": centre[key] for key in keys}
    for row in tables["policies"]:
        name = f"{row['policy'].replace(' ', '_')}_x{row['scale']:g}"
        summary[f"{name}_hours"] = row["hours"] if row["reached"] else math.inf
        summary[f"{name}_rounds"] = row["round"]
    for megabits, width in formulas.half_widths().items():
        summary[f"half_width_{megabits}"] = width
    return summary


def conclude(run: Run) -> str:
    """Return the conclusion: hours and evaluations, and the regret of deadlines."""
    summary = run.summary
    ends = [
        f"{name} {'reach' if summary[reached] else 'have not reached'} "
        f"{summary['target']:.0%} in {summary[f'{key}_hours']:.2f} virtual hours with "
        f"{summary[f'{key}_evaluations']:.0f} gradient evaluations each"
        for name, key, reached in (
            (f"{summary['peers']:,} volunteers", "volunteers", "reached"),
            ("as many peers of a data centre", "centre", "centre_reached"),
        )
    ]
    return (
        f"{', '.join(ends)}; {summary['volunteers_lost']:.0%} of the volunteers' "
        f"averages lost a member. Deadlines from arrivals lose at most "
        f"{summary['regret']:.1%} of the members per second, one constant "
        f"{summary['regret_of_one_constant']:.0%}. "
        f"{summary['matchmakings']:,} matchmakings with lost messages had "
        f"{summary['matchmaking_failures']} failures."
    )


def conclude_real(run: Run) -> str:
    """Return the conclusion of the measurements on real ranks."""
    summary = run.summary
    return (
        f"{summary['ranks']} ranks find their group in {summary['search_p50_ms']:.1f} "
        f"ms (p50; p99 {summary['search_p99_ms']:.1f}), and have the average of "
        f"{summary['buffer']:g} MB after {summary['round_p50_ms']:.1f} ms (p99 "
        f"{summary['round_p99_ms']:.1f}); a ring takes {summary['ring_p50_ms']:.1f} ms."
    )


def draw(path: Path, tables: Tables, target: float) -> None:
    """Draw the accuracy by hours and by gradient evaluations."""
    names = {"volunteers": "volunteers", "data_centre": "data centre"}
    with figures.drawing(path / "training", 1, 2, size=(9, 3.6)) as (_, panels):
        for axes, key, label in zip(
            panels,
            ("hours", "evaluations"),
            ("virtual hours", "gradient evaluations per peer"),
            strict=True,
        ):
            for table, name in names.items():
                rows = tables[table]
                xs = [row[key] for row in rows]
                axes.plot(xs, [row["accuracy"] for row in rows], "o-", label=name)
            rows = tables["volunteers"]
            axes.plot(
                [row[key] for row in rows],
                [row["each"] for row in rows],
                "--",
                color="C0",
                label="a volunteer",
            )
            axes.axhline(target, color="0.5", linewidth=0.8)
            axes.set(xlabel=label, ylabel="accuracy", xlim=(0, None), ylim=(0, 1))
        panels[0].legend(loc="lower right")
    draw_formulas(path / "formulas", tables)


def draw_formulas(path: Path, tables: Tables) -> None:
    """Draw the regret of constant deadlines, and the square-cube law."""
    with figures.drawing(path, 1, 2, size=(10.5, 4.2)) as (_, (left, right)):
        for row in tables["deadlines"]:
            if row["delays"].startswith("constant"):
                continue
            left.plot(regrets.CONSTANTS, row["curve"], label=row["delays"])
        worst = regrets.worst(tables["deadlines"], "regret")
        left.axhline(worst, color="black", linestyle=":", label="arrivals, at worst")
        left.set(xscale="log", xlabel="constant deadline in s", ylim=(0, 1))
        left.set(ylabel="share of members per second lost")
        left.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
        for megabits in formulas.MEGABITS:
            rows = tables["square_cube"]
            shares = [row[f"share_{megabits}"] for row in rows]
            widths = [row["width"] for row in rows]
            right.plot(widths, shares, "o-", label=f"{megabits} Mbit/s")
        right.set(xscale="log", xlabel="width of a stage", ylim=(0, 1))
        right.set(ylabel="share of time in communication")
        right.legend()
