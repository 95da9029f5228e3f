"""Training without a centre: accuracy by strategy and by skew of the ranks' data.

python experiments/decentralised.py                               eight virtual ranks
python experiments/decentralised.py --strategies=gossip,relay,diloco --ranks=16
python experiments/decentralised.py --skews=dirichlet:0.01 --topology=exponential

All ranks train one network on minibatches of their own shards, and mix their replicas
as a strategy says. `accuracy` is that of the mean of all replicas on held-out images,
`each` the mean of the accuracies of single replicas, `consensus` the mean squared
distance of replicas to their mean. `MB` is sent by a rank in the training. A row has
the most accurate of the learning rates of --lrs, since strategies differ in their best
rate: relay averages with older models, and moves more slowly at equal rates. --topology
is used by the strategies that run on any graph; relay has a tree.

Cost: 40 trainings of 120 updates of 8 ranks, 150 s on one core.
"""

from collections.abc import Sequence

from lab import flags, writing
from studies.decentralised import report
from studies.decentralised.training import STRATEGIES, make_task, refuse

from dml.runs import folder, writers

NAMES = (
    "synchronous,local,gossip,push_sum,relay,d2,gradient_tracking,moshpit,easgd,diloco"
)

FLAGS = flags.define("seed")
FLAGS.text("data", "digits", "Images: a name or a folder.")
FLAGS.text("strategies", NAMES, "Comma-separated strategies.")
FLAGS.text(
    "skews",
    "similarity:1;dirichlet:0.01",
    "Skews of the ranks' examples, separated by semicolons, as in --skew.",
)
FLAGS.text("topology", "ring", "Topology of gossip, push_sum, d2, gradient_tracking.")
FLAGS.text("tree", "tree", "Topology of relay: tree, chain or star.")
FLAGS.integer("ranks", 8, "Number of virtual ranks.", 2, 4096)
FLAGS.integer("seeds", 1, "Number of trainings of each row.", 1, 12)
FLAGS.integer("steps", 120, "Number of updates of a rank.", 1)
FLAGS.integer("batch", 8, "Number of examples of a rank in a minibatch.", 1)
FLAGS.integer("period", 8, "Number of updates in a round of local and diloco.", 1)
FLAGS.text("lrs", "0.1,0.4", "Learning rates of SGD, of which the best is shown.")


def main(argv: Sequence[str]) -> report.Row:
    """Train with each strategy on each skew; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "decentralised")
    strategies = flags.names(FLAGS.strategies, STRATEGIES, "strategies")
    skews = FLAGS.skews.split(";")
    rates = flags.numbers(FLAGS, "lrs", 1e3)
    task = make_task(FLAGS)
    refuse(task, strategies, skews, FLAGS)
    rows: list[report.Row] = []
    table = writers.table(report.COLUMNS)
    with writing.run_writer(
        path, FLAGS, None, table, sentence=report.conclude
    ) as writer:
        for row in report.rows(task, strategies, skews, rates, FLAGS):
            rows.append(row)
            writer.row(row)
        summary = report.summarize(rows)
        report.draw(path / "accuracy", rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
