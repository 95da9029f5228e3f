"""Compressed gradients: loss by updates, bytes and seconds, and where they pay.

python experiments/compressed.py                              four virtual ranks
python experiments/compressed.py --reducers=exact,top_k:0.01+feedback --ranks=16
python experiments/compressed.py --problem=gpt --steps=1000 --gbps=1
python experiments/compressed.py --optimizer=adam --reducers=exact,one_bit_adam:60
python experiments/compressed.py --equal_bytes=power_sgd:2+feedback --seeds=5
python experiments/compressed.py --problem=counterexample_2

Each reducer trains the same problem on the same minibatches at the same learning rate.
`dgc` and `one_bit_adam` have momentum of their own; their update rule is SGD at the
rate of the optimizer that they replace. `ratio` is the number of times by which a rank
sends less than the exact ring all-reduce. `ms` is the time of an update: the gradient
of a rank's examples, the codec and, on a virtual network of --gbps, the messages.
Gradient and codec are measured in processor seconds; nothing overlaps. `pays below` is
the bandwidth at which the codec takes as long as sending the saved bytes: on faster
networks compression loses time.

The problems counterexample_1, _2 and _3 are those of Karimireddy 2019, on which the
signs of gradients without feedback do not converge.

Cost: 60 s on one core.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.compression import problems, report, runs
from studies.compression.claims import CLAIMS as CLAIMS
from studies.compression.claims import testable

from dml import extend
from dml.problems import PROBLEMS
from dml.runs import folder, writers
from dml.types import Problem
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import layout

Row = dict[str, Any]

REDUCERS = (
    "exact,int8+feedback,natural,qsgd:4,terngrad,sign,sign+feedback,vote,"
    "top_k:0.01+feedback,dgc:0.01,random_k:0.1+feedback,power_sgd:2,"
    "power_sgd:2+feedback,power_sgd_alternating:2+feedback"
)

FLAGS = flags.define("seed")
KNOWN = PROBLEMS | dict(problems.PROBLEMS)
FLAGS.extensible("problem", "digits", KNOWN, extend.PROBLEMS, "Problem.")
FLAGS.text("reducers", REDUCERS, "Comma-separated reducers, as in --reduce.")
FLAGS.text("equal_bytes", "", "Reducer; random_k and top_k that send as much follow.")
FLAGS.text("optimizer", "", "Update of the parameters; empty: the problem's default.")
FLAGS.number("lr", 0, "Learning rate; 0: the problem's for the optimizer.", 0)
FLAGS.integer("ranks", 4, "Number of virtual ranks.", 1, 1024)
FLAGS.integer("steps", 300, "Number of updates.", 1)
FLAGS.integer("batch", 0, "Examples in a minibatch over all ranks; 0: default.", 0)
FLAGS.integer("seeds", 1, "Number of trainings, each with other minibatches.", 1)
FLAGS.integer("repeats", 5, "Number of timings, whose median counts.", 1)
FLAGS.number("gbps", 10, "Bandwidth of the virtual network in Gb/s.", 1e-3, 1e6)
FLAGS.number("latency_us", 20, "Latency of a message in microseconds.", 0, 1e6)


def main(argv: Sequence[str]) -> Row:
    """Train with each reducer; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "compressed")
    task = problems.find(FLAGS.problem)
    names = reducers(task)
    rows: list[Row] = []
    curves: dict[str, list[Row]] = {}
    plain = 0.0
    batch = problems.settings("exact", FLAGS).batch
    table = writers.table(report.COLUMNS, FLAGS.wide)
    judged = testable(names, FLAGS)
    with writing.run_writer(
        path, FLAGS, None, table, claims=judged, conclude=report.conclude
    ) as writer:
        gradient = runs.gradient_seconds(task, batch, FLAGS)
        for name in names:
            own = problems.settings(name, FLAGS)
            seeds = flags.seeds(FLAGS)
            trained = [runs.train(task, name, own, seed, FLAGS) for seed in seeds]
            seconds = runs.reduction_seconds(task, name, FLAGS)
            plain = plain or seconds  # of the exact reducer, which is the first
            costs = runs.Costs(gradient, max(0.0, seconds - plain))
            epoch = task.examples / batch
            results = report.Trained(name, own.optimizer, trained, costs, epoch)
            rows.append(report.row(results, rows[:1]))
            curves[name] = trained[0].rows
            writer.row(rows[-1])
        report.draw(path, curves, rows)
        summary = report.summarize(rows)
        writer.summary(summary)
    return summary


def reducers(task: Problem) -> list[str]:
    """Return the names of the reducers; raise BadInput before the first training."""
    names = ["exact", *FLAGS.reducers.split(",")]
    if FLAGS.equal_bytes:
        more = runs.equal_bytes(task, FLAGS.equal_bytes, FLAGS)
        names = ["exact", FLAGS.equal_bytes, *more]
    for name in dict.fromkeys(names):
        flags.reducer(name, tree_allreduce).init(layout(task.params))
        problems.settings(name, FLAGS)
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    flags.run(main)
