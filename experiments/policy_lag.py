"""Return by imposed policy lag: V-trace, 1-step, epsilon-correction, no correction.

python experiments/policy_lag.py                              CartPole, lags 0 to 16
python experiments/policy_lag.py --lags=0,64 --lr=0.01 --seeds=5
python experiments/policy_lag.py --environment=catch --csv

The rollouts of update n are played with the params of version n-k, for a policy lag of
exactly k updates. With actors and learners the lag varies; here it is imposed. All
trainings of a seed have the same initial params and the same first episodes.

The mean return is the mean over the evaluations of a training, which is the area under
its learning curve; ± is the standard error over the seeds.

Cost: 64 trainings of 102,400 frames, 32 s on 2 cores.
Result: with a lag of 16 updates V-trace keeps 83 % of its mean return, 1-step 89 %, and
the corrections without importance weights 9 %.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.policy_lag.claims import CLAIMS as CLAIMS
from studies.policy_lag.report import COLUMNS, chart, conclude, summarize
from studies.policy_lag.runs import Task, rows
from studies.rl.settings import ROLLOUTS

from dml.models.policies.actor_critic import CORRECTIONS
from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.update.dense import OPTIMIZERS

DEFAULTS = ROLLOUTS["cartpole"]
FLAGS = flags.define("seed")
FLAGS.choice("environment", "cartpole", list(ROLLOUTS), "Environment.")
FLAGS.text("corrections", ",".join(CORRECTIONS), "Corrections, comma-separated.")
FLAGS.text("lags", "0,1,4,16", "Policy lags in updates, comma-separated.")
FLAGS.integer("seeds", 4, "Number of trainings of each correction and lag.", 1, 1000)
FLAGS.integer("updates", 800, "Number of updates.", 1)
FLAGS.integer("points", 20, "Number of evaluations of a training, evenly spaced.", 1)
FLAGS.integer("episodes", 32, "Number of episodes in an evaluation.", 1)
FLAGS.choice("optimizer", DEFAULTS.optimizer, list(OPTIMIZERS), "Optimizer.")
FLAGS.number("lr", 0.0, "Learning rate; 0: the default of the environment.", 0)
FLAGS.integer("processes", 0, "Number of processes; 0: one for each core.", 0, 256)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    settings = ROLLOUTS[FLAGS.environment]
    task = Task(
        FLAGS.environment,
        settings.copies,
        settings.length,
        FLAGS.updates,
        min(FLAGS.points, FLAGS.updates),
        FLAGS.optimizer,
        FLAGS.lr or settings.lr,
        FLAGS.episodes,
        settings.widths,
        settings.loss,
    )
    corrections = flags.names(FLAGS.corrections, CORRECTIONS, "corrections")
    lags = sorted(set(flags.whole_numbers(FLAGS, "lags")))
    seeds = flags.seeds(FLAGS)
    path = folder.path(FLAGS.out, "policy_lag")
    shown = writers.table(COLUMNS, FLAGS.wide), chart(path)
    with writing.run_writer(
        path, FLAGS, None, *shown, claims=CLAIMS, conclude=conclude
    ) as writer:
        written: list[Row] = []
        for row in rows(task, corrections, lags, seeds, FLAGS.processes):
            written.append(row)
            writer.row(row)
        summary = summarize(written)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
