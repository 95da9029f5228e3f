"""Averages without a centre: rounds and bytes of gossip, push-sum, RelaySum, Moshpit.

python experiments/averaging.py
python experiments/averaging.py --p=64,1024 --sides=32x32 --restarts=3
python experiments/averaging.py --sides=32x32x32x32 --absences=0,0.001,0.05
python experiments/averaging.py --watch=exponential --ranks=16    a page that plays it

Every peer has a number from a standard normal distribution. A method is run on virtual
ranks, which count their bytes, if it needs few messages. Otherwise the same plan is
evaluated for all peers at once, or its rounds follow from eigenvalues (`formula`). Rows
that ran show the largest difference from the evaluation. The table of Moshpit (Ryabinin
2021) is recomputed with its own random numbers.

Cost: 20 s of one core.
Result: 2^20 peers in a grid of 32^4 have the exact mean after 4 rounds, in 0.1 s. The
one-peer exponential graph is exact after lg p rounds if p is a power of 2: 9 at 512,
where the table has 47.6 for SGP. Push-sum keeps the mean if messages are lost or late,
gossip does not.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import flags, writing
from studies.averaging import film, report, tables
from studies.averaging.claims import CLAIMS
from studies.averaging.printed import SIDE

from dml.runs import folder, writers
from dml.types import BadInput, spec
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.links import MAX_SIZE, Side

FLAGS = flags.define("seed")
FLAGS.text("p", "16,64,512,1024,1048576", "Numbers of peers of all methods.")
FLAGS.text("sides", "32x32x32x32", "Sides of the grid with absent peers.")
FLAGS.text("absences", "0,0.01,0.1", "Probabilities that a peer of the grid is absent.")
FLAGS.text("peers", "512,768,900", "Numbers of peers of Moshpit's table.")
FLAGS.integer("restarts", 10, "Number of restarts of Moshpit's table.", 1, 1000)
FLAGS.integer("rounds", 8, "Number of rounds with absent peers.", 1, 1000)
FLAGS.integer("grid_restarts", 4, "Number of restarts of the grid.", 2, 1000)
FLAGS.integer("draws", 20_000, "Number of measured rounds of random groups.", 2, 10**8)
FLAGS.integer("length", 16, "Number of values of a peer.", 1, 10**8)
FLAGS.integer(
    "ranks", 32, "Number of virtual ranks with lost messages, or of --watch.", 2, 4096
)
FLAGS.text("watch", "", "Topology whose gossip is played in watch.html, as ring.")


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Average with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "averaging")
    if FLAGS.watch:
        return watch(path)
    arguments = report.Arguments(
        sizes=peers("p", 2, MAX_SIZE),
        sides=sides(),
        peers=peers("peers", SIDE + 1, SIDE**2),
        restarts=FLAGS.restarts,
        absences=sorted(set(flags.numbers(FLAGS, "absences", 0.99))),
        teapot_rounds=FLAGS.rounds,
        teapot_restarts=FLAGS.grid_restarts,
        draws=FLAGS.draws,
        length=FLAGS.length,
        fault_ranks=FLAGS.ranks,
        seed=FLAGS.seed,
    )
    flags.check_memory(8 * FLAGS.length, min(max(arguments.sizes), 1024))
    console = writers.tables(tables.COLUMNS, tables.TITLES, FLAGS.wide)

    with writing.run_writer(
        path, FLAGS, None, console, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        made = writing.write_tables(writer, report.TABLES, arguments)
        summary = report.summarize(made)
        report.draw(path / "averaging", made, arguments)
        writer.summary(summary)
    return summary


def watch(path: Path) -> dict[str, Any]:
    """Write watch.html, which plays gossip; return the summary."""
    topology(FLAGS.watch, FLAGS.ranks)  # raises if the text is wrong
    with writing.run_writer(path, FLAGS, None) as writer:
        messages = film.write(path / "watch.html", FLAGS.watch, FLAGS.ranks)
        summary = {"watch": FLAGS.watch, "messages": messages}
        writer.summary(summary)
    return summary


def peers(flag: str, least: int, most: int) -> list[int]:
    """Return the numbers of peers of a flag, each from `least` to `most`."""
    numbers = flags.integers(FLAGS, flag)
    for number in numbers:
        if not least <= number <= most:
            raise BadInput(
                f"expected {least} to {most} peers in --{flag}, got {number}; "
                "correct it"
            )
    return numbers


def sides_of(*side: Side) -> tuple[int, ...]:
    return side


def sides() -> tuple[int, ...]:
    """Return the sides of the grid."""
    found: tuple[int, ...] = spec.apply(
        FLAGS.sides, sides_of, "sides such as 32x32 in --sides"
    )
    if not 2 <= math.prod(found) <= MAX_SIZE:
        raise BadInput(
            f"expected a grid with 2 to {MAX_SIZE} seats, got --sides={FLAGS.sides}; "
            "change its sides"
        )
    return found


if __name__ == "__main__":
    flags.run(main)
