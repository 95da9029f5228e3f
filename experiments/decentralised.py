"""Training without a centre: accuracy by strategy and by skew of the ranks' data.

python experiments/decentralised.py                               eight virtual ranks
python experiments/decentralised.py --strategies=gossip,relay,diloco --ranks=16
python experiments/decentralised.py --strategies=gossip --topologies=ring,torus,complete

All ranks train one network on minibatches of their own shards, and mix their replicas
as a strategy says. `accuracy` is that of the mean of all replicas on held-out images,
as a mean over seeds, and `range` its largest difference between seeds. `each` is the
mean of the accuracies of single replicas, `consensus` the mean squared distance of
replicas to their mean. `MB` is sent by a rank in the training, in `seconds` of virtual
time on a network of 1 Gb/s and 1 ms. A row has the most accurate of the learning rates
of --lrs, since strategies differ in their best rate: relay averages with older models,
and needs larger ones. Strategies that run on any graph have a row for each topology.

Cost: 60 trainings of 300 updates of 8 ranks, 150 s on one core.
"""

from collections.abc import Sequence

from lab import flags, writing
from studies.decentralised import report
from studies.decentralised.claims import CLAIMS
from studies.decentralised.training import STRATEGIES, WIDTHS, refuse

from dml.problems import network
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
FLAGS.text(
    "topologies",
    "ring",
    "Comma-separated topologies of gossip, push_sum, d2 and gradient_tracking.",
)
FLAGS.text("trees", "tree", "Comma-separated topologies of relay: tree, chain, star.")
FLAGS.integer("ranks", 8, "Number of virtual ranks.", 2, 4096)
FLAGS.integer("seeds", 1, "Number of trainings of each row.", 1, 12)
FLAGS.integer("steps", 300, "Number of updates of a rank.", 1)
FLAGS.integer("batch", 8, "Number of examples of a rank in a minibatch.", 1)
FLAGS.integer("period", 8, "Number of updates in a round of local and diloco.", 1)
FLAGS.text("lrs", "0.4,0.8,1.6", "Learning rates of SGD, of which the best is shown.")


def main(argv: Sequence[str]) -> report.Row:
    """Train with each strategy on each skew; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "decentralised")
    strategies = flags.names(FLAGS.strategies, STRATEGIES, "strategies")
    skews = FLAGS.skews.split(";")
    rates = flags.numbers(FLAGS, "lrs", 1e3)
    task = network("mlp", FLAGS.data, *WIDTHS)
    refuse(task, strategies, skews, FLAGS)
    rows: list[report.Row] = []
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=report.conclude
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
