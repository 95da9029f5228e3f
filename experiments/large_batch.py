"""Accuracy of large minibatches by workers and warm-up schedule (Goyal 2017).

python experiments/large_batch.py                    digits, 5 seeds, 21 rows
python experiments/large_batch.py --lr=0.02 --seeds=10
python experiments/large_batch.py --data=mnist_5k --epochs=20 --target=0.93

k workers with --base_batch images per worker compute the same updates as one worker
with k times the batch (tests of the strategies check this), so one worker runs here.
The peak learning rate is multiplied by k, except for `unscaled`; it decays to 0.

Cost: 105 trainings of 57,000 images, 26 s on 2 cores.
Result: with a scaled rate and a gradual warm-up 16 workers have a test error of 2.1 %,
one worker 1.9 %; unscaled 5.2 %. 32 workers have 12 %. A batch of 80 doubles the epochs
to 95 % accuracy.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags, writing
import numpy as np
from studies.large_batch import figure, report
from studies.large_batch.claims import BASELINE, CLAIMS
from studies.large_batch.rates import WARMUPS, learning_rates
from studies.large_batch.training import (
    MODELS,
    LargeBatchPlan,
    Result,
    noise_scales,
    plan,
    train,
)

from dml import extend
from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.types import BadInput
from dml.update.schedules import SCHEDULES

SEEDS = 12  # at most: the exact test of the claims enumerates 2^seeds signs
FLAGS = flags.define("seed")
FLAGS.extensible("model", "mlp", MODELS, extend.MODELS, "Network.")
FLAGS.text("data", "digits", "Images: a name or a folder.")
FLAGS.integer("seeds", 5, "Number of trainings of each row.", 1, SEEDS)
FLAGS.integer("base_batch", 8, "Images in the minibatch of one worker.", 1)
FLAGS.text("factors", "1,2,4,8,16,32", "Numbers of workers.")
FLAGS.integer("large", 16, "Number of workers in Goyal's table.", 1)
FLAGS.integer("epochs", 40, "Number of epochs.", 1)
FLAGS.number("lr", 0.01, "Peak learning rate of one worker.", 0)
FLAGS.number("warmup_epochs", 4.0, "Length of the warm-up in epochs.", 0)
FLAGS.choice("schedule", "cosine", list(SCHEDULES), "Learning rate after the warm-up.")
FLAGS.number("target", 0.95, "Target accuracy.", 0, 1)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    start = time.perf_counter()
    path = folder.path(FLAGS.out, "large_batch")
    factors = sorted({1, *flags.integers(FLAGS, "factors")})
    if FLAGS.large not in factors or FLAGS.large == 1:
        raise BadInput(
            f"expected --large among the --factors above 1, got {FLAGS.large} and "
            f"{FLAGS.factors}; pass one of them"
        )
    chosen = plan(FLAGS.model, FLAGS.data, FLAGS.base_batch, factors, FLAGS.epochs)
    rows, curves = [], {}
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        for row, trainings in compare(chosen, factors):
            rows.append(row)
            writer.row(row)
            if row["warmup"] == BASELINE:
                scales = noise_scales(chosen, trainings[0].snapshots, FLAGS.seed)
                epoch = report.reached(trainings[0], FLAGS.target) or 0
                # Noise scales at the target, or else at the end, and at the end.
                noise = scales[epoch - 1], scales[-1]
            if row["workers"] in (1, FLAGS.large):
                losses = np.array([run.losses for run in trainings])
                curves[row["warmup"], row["batch"]] = losses
        times = report.speed_ups(rows, chosen.parameters)
        summary = report.summary(rows, times, FLAGS.large, noise)
        summary["seconds"] = time.perf_counter() - start
        report.print_tables(rows, times, FLAGS.large, FLAGS.target, summary)
        figure.accuracies(path / "accuracy", rows)
        figure.targets(path / "target", rows, times, summary["batch_limit"])
        figure.losses(path / "warmups", curves, chosen.between / chosen.count)
        writer.summary(summary)
    return summary


def compare(
    plan: LargeBatchPlan, factors: Sequence[int]
) -> Iterator[tuple[Row, list[Result]]]:
    """Yield the row and the trainings of every number of workers and warm-up."""
    for factor in factors:
        for name in WARMUPS if factor > 1 else [BASELINE]:
            rates = learning_rates(plan, factor, name, FLAGS)
            first_keeps = name == BASELINE  # snapshots for the noise scale
            trainings = [
                train(plan, factor, seed, rates, keep=first_keeps and not n)
                for n, seed in enumerate(flags.seeds(FLAGS))
            ]
            row = report.row(plan, factor, name, rates, FLAGS.target, trainings)
            yield row, trainings


if __name__ == "__main__":
    flags.run(main)
