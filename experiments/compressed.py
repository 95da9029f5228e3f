"""Compressed gradients: loss by updates and by bytes, and where compression pays.

python experiments/compressed.py                              four virtual ranks
python experiments/compressed.py --reducers=exact,top_k:0.01+feedback --ranks=16
python experiments/compressed.py --problem=gpt --steps=100

Each reducer trains the same network on the same minibatches at the same learning rate.
`MB` is what a rank sends in the run; `ratio` is the number of times by which that is
less than what the exact ring all-reduce sends. `codec us` is the measured time of a
reduction beyond that of the exact one, per update and rank. `pays below` is the
bandwidth at which this time equals the time to send the saved bytes: on faster networks
compression loses time.

Cost: 40 s on one core.
Result: on 2 cores of an EPYC (Zen 5), 4 ranks: power_sgd:2+feedback sends 18 times
fewer bytes than the exact ring at the same accuracy, and saves time below 8 Gb/s;
sign+feedback sends 32 times fewer at 2.5 points less.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.compression import report, runs

from dml import extend
from dml.runs import folder, writers
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import layout

Row = dict[str, Any]

REDUCERS = (
    "exact,int8+feedback,natural,qsgd:4,terngrad,sign,sign+feedback,"
    "top_k:0.01+feedback,random_k:0.1+feedback,power_sgd:2+feedback"
)

FLAGS = flags.define("seed")
FLAGS.extensible("problem", "digits", runs.PROBLEMS, extend.PROBLEMS, "Problem.")
FLAGS.text("reducers", REDUCERS, "Comma-separated reducers, as in --reduce.")
FLAGS.integer("ranks", 4, "Number of virtual ranks.", 1, 1024)
FLAGS.integer("steps", 300, "Number of updates.", 1)
FLAGS.integer("batch", 64, "Number of examples in a minibatch, over all ranks.", 1)
FLAGS.number("lr", 0.02, "Learning rate of SGD with momentum 0.9.", 0)
FLAGS.integer("repeats", 5, "Number of timings of a reduction; their median counts.", 1)


def main(argv: Sequence[str]) -> Row:
    """Train with each reducer; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "compressed")
    names = list(dict.fromkeys(["exact", *FLAGS.reducers.split(",")]))
    task = runs.find_problem(FLAGS.problem)
    for name in names:  # refused before the first training
        flags.reducer(name, tree_allreduce).init(layout(task.params))
    rows: list[Row] = []
    curves: dict[str, list[Row]] = {}
    plain = 0.0
    table = writers.table(report.COLUMNS)
    with writing.run_writer(
        path, FLAGS, None, table, sentence=report.conclude
    ) as writer:
        for name in names:
            trained = runs.train(task, name, FLAGS)
            seconds = runs.reduction_seconds(task, name, FLAGS)
            plain = plain or seconds  # of the exact reducer, which is the first
            codec = max(0.0, seconds - plain)
            rows.append(report.row(name, trained, codec, FLAGS.ranks, rows[:1]))
            curves[name] = trained.rows
            writer.row(rows[-1])
        report.draw(path, curves)
        summary = report.summarize(rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
