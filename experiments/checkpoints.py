"""Checkpoints: intervals, copies in peers' memory, and writes in the background.

python experiments/checkpoints.py
python experiments/checkpoints.py --checkpoint=5 --mean=86400    a failure per day
python experiments/checkpoints.py --machines=17 --copies=3       a group and a ring
python experiments/checkpoints.py --width=1500 --repeats=3       a state of 81 MB

`intervals` compares the expected time of a run with failures (Young, Daly) with random
runs and with a virtual cluster whose ranks fail. `recovery` is the probability that the
memory of peers has all states after failures of random machines (Gemini). `overhead` is
measured here: a perceptron is trained by Adam, and the steps during a save are compared
with the steps around it. CheckFreq's rule sets the interval of saves by their cost.

Cost: 30 s on 2 cores, most of it for the overhead.
Result: with a failure per hour and checkpoints of 60 s the best interval is 618 s, with
which a run takes 1.25 times its work; Young's interval of 657 s takes 0.03 % more. 16
machines with 2 copies survive 2 failures in 93.3 % of the cases, and 86.7 % in a ring.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.checkpoints import columns, report
from studies.checkpoints.claims import CLAIMS
from studies.checkpoints.overhead import Network

from dml.runs import folder, writers
from dml.wire.costs.checkpointing import Failures
from dml.wire.plans.placement import check

FLAGS = flags.define("seed")
FLAGS.number("checkpoint", 60.0, "Duration of a checkpoint in seconds.", 1e-6)
FLAGS.number("restart", 120.0, "Seconds from a failure until work continues.", 0)
FLAGS.number("mean", 3600.0, "Mean seconds between failures.", 1e-3)
FLAGS.text(
    "factors", "0.25,0.5,0.75,1,1.5,2,4", "Intervals in multiples of the best one."
)
FLAGS.integer("runs", 4000, "Number of random runs of 100 intervals.", 2, 10**6)
FLAGS.integer("segments", 30_000, "Number of intervals of a virtual run.", 1, 10**7)
FLAGS.integer("ranks", 4, "Number of virtual ranks, each of which fails.", 1, 4096)
FLAGS.integer("machines", 16, "Number of machines with copies in memory.", 1, 4096)
FLAGS.integer("copies", 2, "Number of copies of each state.", 1, 64)
FLAGS.integer("draws", 100_000, "Number of random sets of failed machines.", 2, 10**7)
FLAGS.integer("width", 384, "Layer width of the measured network.", 1, 10**5)
FLAGS.integer("batch", 64, "Minibatch size of the measured network.", 1, 10**5)
FLAGS.number("overhead", 3.5, "Largest overhead of saves in percent.", 0.1, 100)
FLAGS.integer("repeats", 25, "Number of measured saves of each kind; 0: none.", 0)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Simulate and measure with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "checkpoints")
    check(FLAGS.machines, FLAGS.copies)
    flags.check_memory(9 * FLAGS.draws, FLAGS.machines)
    network = Network(FLAGS.width, FLAGS.batch, FLAGS.seed) if FLAGS.repeats else None
    arguments = report.Arguments(
        failures=Failures(FLAGS.checkpoint, FLAGS.restart, FLAGS.mean),
        factors=flags.positive_numbers(FLAGS, "factors"),
        segments=FLAGS.segments,
        ranks=FLAGS.ranks,
        runs=FLAGS.runs,
        machines=FLAGS.machines,
        copies=FLAGS.copies,
        draws=FLAGS.draws,
        network=network,
        share=FLAGS.overhead / 100,
        repeats=FLAGS.repeats,
        folder=path / "checkpoints",
        seed=FLAGS.seed,
    )
    report.check_failures(arguments)
    console = writers.tables(columns.COLUMNS, columns.TITLES, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, console, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        tables = writing.write_tables(writer, report.TABLES, arguments)
        report.draw(path, tables, arguments.failures)
        summary = report.summarize(tables)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
