"""Asynchronous DiLoCo with workers of unequal speed: loss by updates and by seconds.

python experiments/async_diloco.py                    four virtual workers, six methods
python experiments/async_diloco.py --speeds=1,1,1,5 --methods=synchronous,dynamic
python experiments/async_diloco.py --seeds=3 --phases=100 --async_lr=0.1

Workers train a network on a mixture of Gaussians, as in the example of Liu 2024, by
tasks of --period updates. Methods:

synchronous       DiLoCo; the other methods except ad_psgd apply each arriving change
nesterov          momentum at every arrival, outer learning rate --async_lr
sgd               no momentum
delayed_nesterov  momentum once per K arrivals of K workers
dynamic           delayed_nesterov, with shorter tasks for slower workers
ad_psgd           averages of pairs of replicas, inner learning rate --pair_lr

All methods have the same number of updates. `s to loss` is the time until the loss is
at most 1.1 times the final loss of the first method.

Cost: 6 trainings of 3,200 updates of 17,668 parameters, 40 s on one core.
"""

from collections.abc import Sequence

from lab import flags, writing
from studies.decentralised import async_report as report
from studies.decentralised.async_training import METHODS

from dml.runs import folder, writers
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.text("methods", ",".join(METHODS), "Comma-separated methods.")
FLAGS.text("speeds", "0.58,0.75,1.51,3.33", "Virtual seconds per update of each rank.")
FLAGS.integer("phases", 40, "Number of tasks of a rank of a synchronous method.", 1)
FLAGS.integer("period", 20, "Number of updates in a task.", 1)
FLAGS.integer("batch", 32, "Number of examples of a rank in a minibatch.", 1)
FLAGS.number("lr", 1e-3, "Learning rate of AdamW, the inner optimizer.", 0)
FLAGS.number("pair_lr", 4e-3, "Learning rate of AdamW in ad_psgd.", 0)
FLAGS.number("decay", 1e-3, "Weight decay of AdamW.", 0)
FLAGS.number("outer_lr", 0.7, "Outer learning rate.", 0)
FLAGS.number("async_lr", 0.07, "Outer learning rate of nesterov.", 0)
FLAGS.number("outer_momentum", 0.9, "Outer momentum.", 0, 1)
FLAGS.integer("seeds", 1, "Number of trainings of each method.", 1, 12)
FLAGS.integer("examples", 32000, "Number of training examples.", 1)
FLAGS.integer("features", 64, "Number of features of an example.", 1)
FLAGS.integer("width", 256, "Number of hidden units.", 1)
FLAGS.number("noise", 0.3, "Standard deviation of a feature around its center.", 0)
FLAGS.integer("points", 40, "Number of evaluations of a training.", 2)


def main(argv: Sequence[str]) -> report.Row:
    """Train by each method; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "async_diloco")
    methods = flags.names(FLAGS.methods, METHODS, "methods")
    speeds = flags.positive_numbers(FLAGS, "speeds")
    if len(speeds) < 2:
        raise BadInput(
            f"expected two speeds or more in --speeds, got {FLAGS.speeds!r}; pass one "
            "for each worker"
        )
    rows: list[report.Row] = []
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, conclude=report.conclude
    ) as writer:
        for row in report.rows(methods, speeds, FLAGS):
            rows.append(row)
            writer.row(row)
        summary = report.summarize(rows)
        report.draw(path / "loss", rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
