"""Partial exchange of examples between ranks: bytes and accuracy (Nguyen 2022).

python experiments/shuffling.py                               four virtual ranks
python experiments/shuffling.py --strategy=synchronous --reduce=sign+feedback
python experiments/shuffling.py --strategy=local --period=8 --fractions=0,0.05,1

Each rank trains on minibatches of its shard. Before each epoch a fraction Q of
every shard moves to random ranks: Q = 0 shuffles within shards, Q = 1 is a global
reshuffle. Shards are random (`iid`) or have few labels each (`sorted`). MB are counted,
per epoch and rank; with `local`, `gradient MB` are those of averages of parameters. `r`
is the number of times by which a ring all-reduce in every update sends more than that.
`ratio` is the shuffle over the gradients; `formula` is Qrxb/2n for x bytes of an
example, b examples of a rank in a minibatch and n bytes of parameters.

Cost: 80 trainings of 10 epochs on digits, 50 s on one core.
Result: synchronous SGD has 95 % accuracy with every Q, on both kinds of shards. Local
SGD with averages every 32 updates has 78 % on sorted shards with Q = 0, 94.7 % with
Q = 0.1 and 95.1 % with Q = 1. A global reshuffle sends 16 % of the bytes of exact
gradients, and 4.8 times those of the averages.
"""

from collections.abc import Sequence

from lab import flags, writing
from studies.shuffling import report
from studies.shuffling.claims import CLAIMS
from studies.shuffling.training import STRATEGIES, make_task

from dml.runs import folder, writers

FLAGS = flags.define("seed")
FLAGS.text("data", "digits", "Images: a name or a folder.")
FLAGS.text("strategy", "all", "Comma-separated strategies: synchronous, local, or all.")
FLAGS.text("fractions", "0,0.01,0.1,1", "Fractions Q of a shard that are exchanged.")
FLAGS.integer("ranks", 4, "Number of virtual ranks.", 2, 4096)
FLAGS.integer("seeds", 5, "Number of trainings of each row.", 1, 12)
FLAGS.integer("epochs", 10, "Number of epochs.", 1)
FLAGS.integer("batch", 24, "Number of examples of a rank in a minibatch.", 1)
FLAGS.integer("period", 32, "Number of updates between two averages of local.", 1)
FLAGS.number("lr", 0.2, "Learning rate of SGD.", 0)
FLAGS.reducer()


def main(argv: Sequence[str]) -> report.Row:
    """Train with each setting; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "shuffling")
    strategies = flags.names(FLAGS.strategy, STRATEGIES, "strategy")
    fractions = sorted(set(flags.numbers(FLAGS, "fractions", 1)))
    for strategy in strategies:  # refused before the first training
        flags.check_reduce(FLAGS.reduce, strategy, "sgd")
    task = make_task(FLAGS)
    rows: list[report.Row] = []
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        for row in report.rows(task, strategies, fractions, FLAGS):
            rows.append(row)
            writer.row(row)
        summary = report.summarize(rows)
        report.print_parity(summary)
        report.draw(path / "accuracy", rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
