"""Tables, summary and figure of averaging.py."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.claims import grouped
from lab.writing import flatten_rows
import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row
from dml.wire.plans.averaging.contraction import rounds_to
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.mixing import MAX_DENSE, gap, matrix, spectral_gap
from studies.averaging import contractions, printed, rounds
from studies.averaging.methods import evaluate

GRAPHS = ("ring", "torus", "exponential", "one_peer_exponential", "hypercube")
TREES = ("chain", "tree", "star")
MAX_TREE = 256  # peers of a tree whose eigenvalues are computed
DRAWN = ("ring", "exponential", "one_peer_exponential", "random_groups", "moshpit")
DRAWN_ROUNDS = 14
FLOOR = 1e-18  # of drawn variances


class Arguments(NamedTuple):
    """The arguments of all tables.

    Attributes:
      sizes: Numbers of peers of the rounds.
      sides: Sides of the grid of teapots.
      peers: Numbers of peers of the printed table.
      restarts: Number of restarts of the printed table.
      absences: Probabilities that a teapot is absent.
      teapot_rounds: Number of rounds with absent teapots.
      teapot_restarts: Number of restarts with absent teapots.
      draws: Number of measured rounds of independent groups.
      length: Number of values of a peer.
      fault_ranks: Number of ranks with faults.
      seed: Random seed.
    """

    sizes: Sequence[int]
    sides: Sequence[int]
    peers: Sequence[int]
    restarts: int
    absences: Sequence[float]
    teapot_rounds: int
    teapot_restarts: int
    draws: int
    length: int
    fault_ranks: int
    seed: int


Tables = Mapping[str, Sequence[Row]]  # rows of earlier tables by name


def graph_rows(sizes: Sequence[int]) -> Iterator[Row]:
    """Yield messages and spectral gap of every graph, and the rounds that follow."""
    for p in sizes:
        for name in (*GRAPHS, *TREES):
            if name == "hypercube" and p & (p - 1):
                continue
            graph = topology(name, p)
            if graph.spectrum:
                cycle = np.ones(p, complex)
                for t in range(graph.period):
                    cycle = cycle * graph.spectrum(t)
                found = gap(cycle)
            elif p <= min(MAX_TREE, MAX_DENSE):
                found = spectral_gap(matrix(graph))
            else:
                continue
            sent = rounds.messages_per_round(graph)
            static = graph.spectrum and graph.period == 1 and p > 1
            yield {
                "topology": name,
                "p": p,
                "degree": sent / p,
                "gap": found,
                "rounds_by_gap": rounds_to(graph, 1e-9) if static else None,
            }


def round_rows(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the rounds of every method, with the units of the table."""
    for row in rounds.rows(arguments.sizes, arguments.length, arguments.seed):
        sent, seconds = row["bytes"], row.get("seconds")
        yield row | {
            "megabytes": None if sent is None else sent / 1e6,
            "milliseconds": None if seconds is None else 1e3 * seconds,
        }


TABLES: dict[str, Callable[[Arguments, Tables], Iterable[Row]]] = {
    "topologies": lambda arguments, tables: graph_rows(arguments.sizes),
    "rounds": round_rows,
    "printed": lambda arguments, tables: printed.rows(
        arguments.peers, (0.0, 0.01), arguments.restarts
    ),
    "contractions": lambda arguments, tables: contractions.group_rows(
        arguments.draws, arguments.seed
    ),
    "teapots": lambda arguments, tables: contractions.teapot_rows(
        arguments.sides,
        arguments.absences,
        arguments.teapot_rounds,
        arguments.teapot_restarts,
        arguments.seed,
    ),
    "faults": lambda arguments, tables: rounds.fault_rows(
        arguments.fault_ranks,
        rounds.fault_kinds(0.05, 0.05, 2, arguments.seed),
        rounds=60,
    ),
}


def summarize(tables: Tables) -> dict[str, Any]:
    """Return the flat summary."""
    summary = flatten_rows(tables["topologies"], "{topology}_{key}_{p}", "gap")
    for row in tables["rounds"]:
        name = f"{row['protocol']}_{{}}_{row['p']}".format
        summary[name("rounds")] = row["rounds_1e-9"]
        summary[name("rounds_to_1e-4")] = row["rounds_1e-4"]
        summary[name("bytes")] = row["bytes"]
    for row in tables["printed"]:
        key = f"printed_{row['method']}_{row['peers']}_{row['absence']:g}"
        summary[key] = row["rounds_1e-9"]
    for row in tables["contractions"]:
        name = f"{row['kind']}_groups_{row['peers']}_{row['groups']}_{{}}".format
        summary |= {name(key): row[key] for key in ("measured", "exact", "published")}
    for row in tables["teapots"]:
        summary[f"teapots_{row['absence']:g}_seconds"] = row["seconds"]
        name = f"teapots_{row['absence']:g}_{{}}_{row['round']}".format
        summary |= {name(key): row[key] for key in ("variance", "exact")}
    for row in tables["faults"]:
        key = f"{row['faults'].replace(' ', '_')}_{row['protocol']}"
        summary[f"{key}_rounds"] = row["rounds_1e-9"]
        summary[f"{key}_mean_error"] = row["mean_error"]
    return summary


def conclude(run: Run) -> str:
    """Return the conclusion: teapots and the one-peer graph."""
    tables = grouped(run.rows, "table")
    teapots = tables["teapots"]
    exact = [row for row in teapots if row["absence"] == teapots[0]["absence"]]
    last = exact[-1]
    ours = [row for row in tables["printed"] if row["method"] == printed.OURS]
    first = ours[0]
    return (
        f"{last['peers']:,} peers have a variance of {last['variance']:.0e} after "
        f"{last['round']} rounds of groups, in {last['seconds']:.1f} s; the one-peer "
        f"exponential graph takes {first['rounds_1e-9']:.1f} rounds to 1e-9 for "
        f"{first['peers']} peers."
    )


def draw(path: Path, tables: Tables, arguments: Arguments) -> None:
    """Draw the variance by round: by method, and of teapots with absent peers."""
    p = max(size for size in arguments.sizes if size <= MAX_DENSE)
    with figures.drawing(path, 1, 2, size=(10.5, 4.8)) as (_, (left, right)):
        for name in DRAWN:
            found = evaluate(name, p, arguments.seed, DRAWN_ROUNDS).variances
            last = rounds.first_below(found, FLOOR)
            kept = found if last is None else found[: last + 1]
            left.plot(np.maximum(kept, FLOOR), "o-", label=name.replace("_", " "))
        left.set(title=f"{p:,} peers", ylabel="variance")
        for index, absence in enumerate(arguments.absences):
            of_one = [row for row in tables["teapots"] if row["absence"] == absence]
            by_key = {
                key: np.maximum([row[key] for row in of_one], FLOOR)
                for key in ("variance", "exact")
            }
            label = f"{absence:.0%} absent" if absence else "none absent"
            right.plot(by_key["variance"], "o", color=f"C{index}", label=label)
            right.plot(by_key["exact"], "--", color=f"C{index}")
        peers = tables["teapots"][0]["peers"]
        right.set(title=f"{peers:,} peers in a grid (dashed: formula)")
        for axes in (left, right):
            axes.set(xlabel="round", yscale="log")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
