"""Ape-X by priorities, ε of actors and number of actors: updates to a return.

python experiments/apex.py                       Catch, 4 methods, 5 seeds each
python experiments/apex.py --environment=cartpole --updates=8000 --every=100

apex          prioritised replay, 6 actors with ε from 0.4 to 0.0007
uniform       all transitions are equally probable
one_epsilon   all actors have the geometric mean of the ε of apex
fewer_actors  2 actors: a third of the new transitions per update

A learner, a replay and the actors are virtual ranks. The return is the mean of 20
greedy episodes, evaluated after every --every updates.

Cost: 20 trainings of 300 to 1520 updates, 12 s on 2 cores.
Result: apex needs 500 updates, uniform 850, one_epsilon 1120 and fewer_actors 390, by
the medians of 5 seeds.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.apex.claims import CLAIMS as CLAIMS
from studies.apex.report import COLUMNS, chart, conclude, summarize
from studies.apex.runs import default_task, rows
from studies.rl.settings import REPLAY

from dml.runs import folder, writers
from dml.runs.writers import Row

FLAGS = flags.define("seed")
FLAGS.choice("environment", "catch", list(REPLAY), "Environment.")
FLAGS.integer("updates", 2000, "Number of updates after which a training ends.", 1)
FLAGS.integer("every", 10, "Number of updates between evaluations.", 1)
FLAGS.integer("seeds", 5, "Number of trainings of each method.", 1, 1000)
FLAGS.integer("processes", 0, "Number of processes; 0: one for each core.", 0, 256)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    task = default_task(FLAGS.environment, FLAGS.updates, FLAGS.every)
    seeds = flags.seeds(FLAGS)
    path = folder.path(FLAGS.out, "apex")
    shown = writers.table(COLUMNS, FLAGS.wide), chart(path)
    with writing.run_writer(
        path, FLAGS, None, *shown, claims=CLAIMS, conclude=conclude
    ) as writer:
        written: list[Row] = []
        for row in rows(task, seeds, FLAGS.processes):
            written.append(row)
            writer.row(row)
        summary = summarize(written)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
