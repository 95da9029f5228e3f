"""How large may a minibatch be? 1 to 32 workers, four warm-ups (Goyal 2017, AlexNet).

python experiments/large_batch.py                    digits, 5 seeds, 21 rows of table
python experiments/large_batch.py --lr=0.02 --seeds=10
python experiments/large_batch.py --data=mnist_5k --epochs=20 --target=0.93

k workers of --base_batch images each are the mathematics of one with k times as many
(proved by the strategies' tests), so one runs here: a whole training is one program.
All rows have k times the rate at its peak, but for `unscaled`; then it falls to 0.

Cost: 105 trainings of 57,000 images, 26 s on 2 cores.
Result: with k times the rate and a gradual warm-up 16 workers err as one, on 1.9 and
2.1 %; unscaled on 5.2. 32 err on 12 %. A batch of 80 doubles the epochs to 95 %.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lab import flags, writing
from studies.large_batch import figure, report
from studies.large_batch.claims import BASELINE, CLAIMS
from studies.large_batch.training import (
    MODELS,
    Plan,
    Result,
    noise_scales,
    plan,
    trained,
)

from dml.runs import folder as runs
from dml.runs import writers
from dml.runs.writers import Row
from dml.types import BadInput
from dml.update.schedules import SCHEDULES, linear_scaling, schedule

SEEDS = 12  # the exact test of the claims tries 2^seeds signs
WARMUPS = {  # whether k workers have k times the rate; the warm-up to that rate
    "unscaled": (False, "none"),
    "none": (True, "none"),
    "constant": (True, "constant"),
    "gradual": (True, "gradual"),
}

FLAGS = flags.define("seed")
FLAGS.choice("model", "mlp", list(MODELS), "Network.")
FLAGS.text("data", "digits", "Images: a name or a folder.")
FLAGS.integer("seeds", 5, "Trainings of each row.", 1, SEEDS)
FLAGS.integer("base_batch", 8, "Images in a worker's minibatch.", 1)
FLAGS.text("factors", "1,2,4,8,16,32", "Numbers of workers.")
FLAGS.integer("large", 16, "Number of workers in Goyal's table.", 1)
FLAGS.integer("epochs", 40, "Number of epochs.", 1)
FLAGS.number("lr", 0.01, "Peak learning rate of one worker.", 0)
FLAGS.number("warmup_epochs", 4.0, "Epochs of a warm-up.", 0)
FLAGS.choice("schedule", "cosine", list(SCHEDULES), "Learning rate after the warm-up.")
FLAGS.number("target", 0.95, "Target accuracy.", 0, 1)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    begun = time.perf_counter()
    path = runs.path(FLAGS.out, "large_batch")
    factors = sorted({1, *flags.integers(FLAGS, "factors")})
    if FLAGS.large not in factors or FLAGS.large == 1:
        raise BadInput(
            f"expected --large of the --factors above 1, got {FLAGS.large} and "
            f"{FLAGS.factors}; pass one of them"
        )
    chosen = plan(FLAGS.model, FLAGS.data, FLAGS.base_batch, factors, FLAGS.epochs)
    rows, curves = [], {}
    table = writers.table(report.COLUMNS)
    with writing.first(path, FLAGS, None, table, claims=CLAIMS) as writer:
        for row, found in compared(chosen, factors):
            rows.append(row)
            writer.row(row)
            if row["warmup"] == BASELINE:
                scales = noise_scales(chosen, found[0].snapshots, FLAGS.seed)
                at = report.reached(found[0], FLAGS.target) or 0
                noise = scales[at - 1], scales[-1]
            if row["workers"] in (1, FLAGS.large):
                losses = np.array([run.losses for run in found])
                curves[row["warmup"], row["batch"]] = losses
        times = report.speed_ups(rows, chosen.parameters)
        summary = report.summary(rows, times, FLAGS.large, noise)
        summary["seconds"] = time.perf_counter() - begun
        report.print_tables(rows, times, FLAGS.large, FLAGS.target, summary)
        figure.accuracies(path / "accuracy", rows)
        figure.targets(path / "target", rows, times, summary["batch_limit"])
        figure.losses(path / "warmups", curves, chosen.between / chosen.count)
        writer.summary(summary)
    return summary


def compared(plan: Plan, factors: Sequence[int]) -> Iterator[tuple[Row, list[Result]]]:
    """Yield the row and the trainings of every number of workers and warm-up."""
    for factor in factors:
        for name in WARMUPS if factor > 1 else [BASELINE]:
            rates, keep = scheduled(plan, factor, name), name == BASELINE
            found = [
                trained(plan, factor, FLAGS.seed + n, rates, keep=keep and n == 0)
                for n in range(FLAGS.seeds)
            ]
            yield report.row(plan, factor, name, rates, FLAGS.target, found), found


def scheduled(plan: Plan, factor: int, warmup: str) -> np.ndarray:
    """Return the rate of every update."""
    steps, batch = plan.steps(factor), factor * plan.base
    scaled, kind = WARMUPS.get(warmup, (True, "none"))
    peak = linear_scaling(FLAGS.lr, batch, plan.base) if scaled else FLAGS.lr
    warm = min(steps, round(FLAGS.warmup_epochs * plan.count / batch))
    rate = schedule(FLAGS.schedule, peak, steps, warm, kind, FLAGS.lr)
    return np.asarray(jax.jit(jax.vmap(rate))(jnp.arange(steps)), np.float32)


if __name__ == "__main__":
    flags.run(main)
