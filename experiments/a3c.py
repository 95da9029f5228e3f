"""A3C by number of workers: virtual seconds, frames and staleness to a return.

python experiments/a3c.py                                CartPole, 1 to 16 workers
python experiments/a3c.py --consistency=ssp --workers=1,4
python experiments/a3c.py --environment=catch --seeds=5

Virtual workers play episodes and push gradients to a parameter server. A step of an
episode takes 1 ms of virtual time, and a gradient the time of its episode. The return
is evaluated by 32 episodes after every 16 updates.

Cost: 25 trainings, 21 s on 2 cores.
Result: 1 worker reaches 475 in 59 virtual seconds, 4 workers in 20, 16 workers in 4.5.
The mean staleness is close to the number of other workers.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.a3c.claims import CLAIMS as CLAIMS
from studies.a3c.report import COLUMNS, chart, conclude, summarize
from studies.a3c.runs import default_task, rows
from studies.rl.settings import EPISODES

from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.types import BadInput

RULES = "async", "softsync", "ssp", "essp", "bsp"

FLAGS = flags.define("seed")
FLAGS.choice("environment", "cartpole", list(EPISODES), "Environment.")
FLAGS.text("workers", "1,2,4,8,16", "Numbers of virtual workers, comma-separated.")
FLAGS.choice(
    "consistency", "async", RULES, "Consistency of the server, such as async or bsp."
)
FLAGS.number(
    "target",
    0.0,
    "Mean return to reach; 0: the return at which the environment is solved.",
    -1e9,
)
FLAGS.integer("updates", 4000, "Number of updates after which a training ends.", 1)
FLAGS.integer("seeds", 5, "Number of trainings of each number of workers.", 1, 1000)
FLAGS.integer("processes", 0, "Number of processes; 0: one for each core.", 0, 256)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    task = default_task(FLAGS.environment, FLAGS.consistency, FLAGS.target)
    task = task._replace(updates=FLAGS.updates)
    workers = sorted(set(flags.integers(FLAGS, "workers")))
    if max(workers) > FLAGS.updates:
        raise BadInput(
            f"expected an update or more of each of {max(workers)} workers, got "
            f"--updates={FLAGS.updates}; pass more --updates, or fewer --workers"
        )
    seeds = flags.seeds(FLAGS)
    path = folder.path(FLAGS.out, "a3c")
    shown = writers.table(COLUMNS, FLAGS.wide), chart(path)
    with writing.run_writer(
        path, FLAGS, None, *shown, claims=CLAIMS, conclude=conclude
    ) as writer:
        written: list[Row] = []
        for row in rows(task, workers, seeds, FLAGS.processes):
            written.append(row)
            writer.row(row)
        summary = summarize(written)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
