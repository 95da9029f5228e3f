"""Training with rare exchanges: loss, bytes and peak bandwidth of DiLoCo.

python experiments/diloco.py                                       four virtual ranks
python experiments/diloco.py --periods=8,64 --period=64 --fragments=2,4 --steps=1024
python experiments/diloco.py --reducers=int8,sign+feedback --seeds=3

A small GPT is trained on articles of Wikipedia with AdamW: synchronously, with a sum of
the gradients in each update, and by DiLoCo (Douillard 2023), with an outer step after H
updates. As in the paper, all methods start from a synchronously trained model. Further
rows have coded outer gradients, or P fragments and a delay (Streaming DiLoCo). All rows
have the same tokens.

`loss` is the cross-entropy per token of held-out text in nats, as a mean over seeds;
`range` is the largest difference between seeds. `MB` is the amount that a rank sends,
`peak KB` the largest amount in one update, and `peak/mean` the ratio of the peak to the
mean over updates. `seconds` is the time of all exchanges on a network of 1 Gb/s and
1 ms.

Cost: 8 trainings of 512 updates of 4 ranks, 134,912 parameters: 150 s on one core.
"""

from collections.abc import Sequence

from lab import flags, writing
from studies.diloco import report
from studies.diloco.claims import CLAIMS
from studies.diloco.training import make_task, methods

from dml.runs import folder, writers

FLAGS = flags.define("seed")
FLAGS.text("corpus", "enwiki", "Text: names, files or folders, separated by commas.")
FLAGS.integer("vocabulary", 512, "Number of tokens of BPE.", 1)
FLAGS.integer("length", 32, "Number of tokens of an example.", 1)
FLAGS.integer("ranks", 4, "Number of virtual ranks.", 2, 4096)
FLAGS.integer("seeds", 1, "Number of trainings of each row.", 1, 12)
FLAGS.integer("steps", 512, "Number of updates of a rank.", 1)
FLAGS.integer("pretraining", 512, "Number of synchronous updates of the start.", 0)
FLAGS.integer("batch", 8, "Number of examples of a rank in a minibatch.", 1)
FLAGS.number("lr", 4e-3, "Peak learning rate of AdamW, with a cosine schedule.", 0)
FLAGS.text("periods", "8,32,128", "Numbers of updates between outer steps, H.")
FLAGS.integer(
    "period", 32, "Number of updates H of the rows of --reducers and --fragments.", 1
)
FLAGS.text("reducers", "int8,qsgd:7", "Comma-separated codes of outer gradients.")
FLAGS.text("fragments", "4", "Numbers of fragments, P; empty: no such rows.")
FLAGS.text("delays", "0,4", "Numbers of updates after which a fragment arrives.")
FLAGS.number("keep", 0.5, "Weight of the local values of a late fragment.", 0, 1)
FLAGS.number("outer_lr", 0.7, "Learning rate of outer steps.", 0)
FLAGS.number("outer_momentum", 0.9, "Nesterov momentum of outer steps.", 0, 1)


def main(argv: Sequence[str]) -> report.Row:
    """Train by each method; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "diloco")
    chosen = methods(FLAGS)
    task = make_task(FLAGS)
    rows: list[report.Row] = []
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        for row in report.rows(task, chosen, FLAGS):
            rows.append(row)
            writer.row(row)
        summary = report.summarize(rows)
        report.draw(path / "loss", rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
