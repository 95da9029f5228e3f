"""Byzantine workers: accuracy by robust rule, attack, number of attackers and skew.

python experiments/byzantine.py                               8 rules, 7 attacks
python experiments/byzantine.py --quick
python experiments/byzantine.py --rules=krum,krum+nnm --attacks=alie,mimic --seeds=3
python experiments/byzantine.py --rules=centred_clipping:F,0.5 --nomomentum
python experiments/byzantine.py --rules=median,./mine.py:rule --seeds=3
python experiments/byzantine.py --preset=byzfl --csv          configuration of ByzFL

Each cell is a training: --honest workers, each with its shard of the examples, and the
attackers, who know all gradients and the rule. A rule tolerates as many attackers as
there are. A rule NAME is that of --reduce=NAME:F, where F is the number of attackers.
The gradients are those of `synchronous` with a logical shard per worker. Without
attackers there is one training for all attacks. A dash is a rule that needs more
workers. An own rule is a function: number of attackers -> robust.Rule.

The worst case of a rule is its least accuracy over all attacks and skews.

Cost: 232 trainings of 300 updates, 95 s on two cores.
"""

import time
from collections.abc import Sequence

from lab import flags, writing
from studies.byzantine import claims, figure, presets, report, runs
from studies.byzantine.claims import CLAIMS as CLAIMS

from dml.runs import folder, writers

FLAGS = flags.define("seed")
RULES = (
    "mean,median,trimmed_mean,krum,geometric_median,centred_clipping,"
    "trimmed_mean+nnm,geometric_median+nnm"
)
ATTACKS = "sign_flip,noise,alie,optimal_alie,optimal_ipm,mimic,label_flip"
FLAGS.text("data", "digits", "Images: a name or a folder.")
FLAGS.text("rules", RULES, "Comma-separated robust rules, as in --reduce.")
FLAGS.text("attacks", ATTACKS, "Comma-separated attacks, as in --attack.")
FLAGS.text("attackers", "0,1,2,3,4", "Numbers of attackers.")
FLAGS.text(
    "skews", "similarity:0.33", "Comma-separated skews of the shards, as in --skew."
)
FLAGS.integer("honest", 10, "Number of honest workers.", 1, 1024)
FLAGS.integer("seeds", 1, "Number of trainings of each cell.", 1, 100)
FLAGS.integer("steps", 300, "Number of updates.", 1)
FLAGS.integer("batch", 25, "Number of examples of a worker in an update.", 1)
FLAGS.number("lr", 0.1, "Learning rate of SGD.", 0)
FLAGS.switch("momentum", True, "Momentum 0.9 of the workers.")
FLAGS.choice("preset", "", presets.PRESETS, "Configuration; other flags override it.")
FLAGS.switch("quick", False, "Short for --preset=quick.")
FLAGS.integer("processes", 0, "Number of processes; 0: one for each core.", 0, 256)


def main(argv: Sequence[str]) -> report.Row:
    """Train every cell; return the summary."""
    flags.parse(FLAGS, argv)
    presets.apply(FLAGS)
    path = folder.path(FLAGS.out, "byzantine")
    begun = time.perf_counter()
    plan = runs.plan(FLAGS)
    judged = claims.testable(plan.rules, plan.attacks)
    rows: list[report.Row] = []
    table = writers.table(report.columns(plan.attackers, plan.skews), FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=judged, conclude=report.conclude
    ) as writer:
        for row in runs.rows(plan):
            rows.append(row)
            writer.row(row)
        report.print_worst(rows)
        figure.draw(path, rows)
        summary = report.summarize(rows)
        summary |= {
            "trainings": len(plan.trainings),
            "seconds": time.perf_counter() - begun,
        }
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
