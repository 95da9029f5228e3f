"""Seconds to an AUC with stragglers: gradient codes, backup workers, and waiting.

python experiments/gradient_coding.py                        10, 20 and 30 workers
python experiments/gradient_coding.py --data=reuters --workers=10 --stragglers=4
python experiments/gradient_coding.py --workers=10 "--law=constant:1*1,1,1,1,0.2"

Virtual workers train logistic regression on all documents of a data set by gradient
descent; a master adds their gradients. `waiting` waits for all n workers; `ignoring`
waits for n-s workers and uses only their documents. `backup` does the same with
n/(n-s) times as many documents, drawn anew for every update. With `repetition` and
`cyclic` each worker computes s+1 times as many documents, and the sum of all documents
is decoded without the terms of s workers. Late workers stop.

A delay X is drawn for every update and worker. With --tails=load a computation takes
X times its load of examples, with --tails=fixed only the least value of X grows.
`predicted` is the mean order statistic, `virtual error` the largest difference of the
virtual ranks from the order statistics of their delays. All schemes use equal delays.

Cost: 35 s of one core; --data=reuters --workers=10 takes 4 s.
Result: with one straggler of 30 and a fixed tail, an update takes 5.4 s by repetition,
8.2 s by cyclic, 7.2 s without the late documents, and 9.4 s by waiting. If the tail
grows with the load, cyclic takes 14.4 s and repetition 8.8 s.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from lab import flags, writing
from studies.gradient_coding.claims import CLAIMS
from studies.gradient_coding.report import (
    COLUMNS,
    chart,
    conclude,
    summarize,
    with_times,
)
from studies.gradient_coding.runs import DATA, Task, auc_problem, rows
from studies.gradient_coding.schemes import CODES, FIXED, LOAD, TAILS, make_scheme

from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.sim.delays import delay_distribution
from dml.update.rules import RULES

FLAGS = flags.define("seed")
FLAGS.choice("data", DATA[0], DATA, "Data set of documents.")
FLAGS.text("workers", "10,20,30", "Numbers n of virtual workers.")
FLAGS.integer("stragglers", 1, "Number s of stragglers that are tolerated.", 0)
FLAGS.text("law", "shifted_exponential:1,0.5", "Delay distribution of X.")
FLAGS.text("tails", f"{FIXED},{LOAD}", "Which part of X grows with the load.")
FLAGS.integer(
    "batch", 0, "Number of documents in a minibatch; 0: all, in fixed parts.", 0
)
FLAGS.integer("updates", 20, "Number of updates.", 1)
FLAGS.choice("optimizer", "momentum", list(RULES), "Update of the weights.")
FLAGS.number("lr", 60.0, "Learning rate.", 0)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    workers = flags.integers(FLAGS, "workers")
    tails = flags.names(FLAGS.tails, TAILS, "tails")
    delay_distribution(FLAGS.law)  # raises if the text is wrong
    for n in workers:
        for name in CODES:
            make_scheme(name, n, FLAGS.stragglers)  # raises if it does not exist
    path = folder.path(FLAGS.out, "gradient_coding")
    shown = writers.table(COLUMNS, FLAGS.wide), chart(path, FLAGS.law)
    with writing.run_writer(
        path, FLAGS, None, *shown, claims=CLAIMS, conclude=conclude
    ) as writer:
        problem = auc_problem(FLAGS.data)
        task = Task(
            problem, FLAGS.batch, FLAGS.optimizer, FLAGS.lr, FLAGS.updates, FLAGS.seed
        )

        written: list[Row] = []
        for tail, n in product(tails, workers):
            compared = list(rows(task, FLAGS.law, tail, n, FLAGS.stragglers))
            for row in with_times(compared):
                written.append(row)
                writer.row(row)
        summary = summarize(written)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
