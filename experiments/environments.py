"""Steps per second of environments, compared with envpool, gymnasium and gymnax.

python experiments/environments.py
python experiments/environments.py --environments=cartpole --copies=1,64
python experiments/environments.py --steppers=dml,envpool_1

A stepper is a package or mode that steps all copies by random actions. In each of
--repeats rounds every stepper is measured for a millisecond or one call. The table has
medians, and `dml/this` is the median ratio of two speeds of one round. `best` is the
fastest round, which other programs disturb least, and `of best` the ratio of two best
speeds. gymnax runs 64 steps in a compiled loop, the other steppers one step in a call.
Packages that are not installed are left out; the extra `rl` has them.

Cost: 20 s on 2 cores with all packages, 2 s without.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.environments import report
from studies.environments.steppers import NAMES, OWN, STEPPERS

from dml.environments.named import find
from dml.runs import folder, writers
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.text(
    "environments",
    ",".join(NAMES),
    "Names of environments, or FILE.py:NAME, comma-separated.",
)
FLAGS.text("copies", "8,64,1024", "Numbers of copies, comma-separated.")
FLAGS.text("steppers", "all", "Names of steppers to compare, comma-separated, or all.")
FLAGS.integer("repeats", 101, "Number of rounds of measurements.", 1)
FLAGS.number(
    "milliseconds", 1.0, "Duration of a measurement in milliseconds.", 0.01, 1e4
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Measure with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "environments")
    names = flags.names(FLAGS.steppers, STEPPERS, "steppers")
    if OWN not in names:
        raise BadInput(
            f"expected {OWN} in --steppers, got {FLAGS.steppers}; add {OWN}, to which "
            "the others are compared"
        )
    environments = FLAGS.environments.split(",")
    for name in environments:
        find(name)  # refused before any measurement
    arguments = report.Arguments(
        environments=environments,
        copies=flags.integers(FLAGS, "copies"),
        steppers=report.available(names),
        repeats=FLAGS.repeats,
        seconds=FLAGS.milliseconds / 1e3,
        seed=FLAGS.seed,
    )
    console = writers.tables(report.COLUMNS, report.TITLES, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, console, conclude=report.conclude
    ) as writer:
        tables = writing.write_tables(writer, report.TABLES, arguments)
        report.draw(path, tables)
        summary = report.summarize(tables)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
