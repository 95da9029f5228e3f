"""Reinforcement learning by actors, learners and servers: A3C, IMPALA, SEED, Ape-X.

mpirun -n 8 python experiments/rl.py --algorithm=impala --environment=cartpole
mpirun -n 8 python experiments/rl.py --algorithm=seed --environment=catch
mpirun -n 8 python experiments/rl.py --algorithm=a3c --consistency=ssp --staleness=2
mpirun -n 8 python experiments/rl.py --algorithm=apex --updates=8000 --until=solved
mpirun -n 8 python experiments/rl.py --record=run.record
python experiments/rl.py --replay=run.record --simulate=8
python experiments/rl.py --simulate=1000 --copies=1 --length=8 --updates=20 \\
    --straggle=pareto:1,1.5
python experiments/rl.py --simulate=8 --elastic "--events=die:3@5" --straggle=constant:1

a3c     workers play episodes and push gradients to a parameter server
impala  actors play rollouts with their copies of the params; learners use V-trace
seed    actors send observations, learners compute actions and updates
apex    actors send transitions to replays; a learner samples them by priority

The first ranks are learners (impala, seed, apex), then replays (apex); the last ones
are servers (a3c). --straggle is the delay distribution of a rollout, or of a worker's
gradient.

Cost: 8 ranks on 2 cores solve CartPole after 3 to 6 s of training, 12 to 15 s with the
start of the ranks. Result: mean return of 475 or more. A replay has the same sha256.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from lab import compiling, flags, writing
from studies.rl import report
from studies.rl.algorithms import ALGORITHMS, settings
from studies.rl.training import train_rank

from dml.environments.named import find
from dml.models.policies.actor_critic import CORRECTIONS
from dml.runs import folder, writers
from dml.train import interruptible
from dml.types import CountedComm
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import first_of_each_host
from dml.wire.server.consistency import CONSISTENCIES

FLAGS = flags.define(
    *("seed", *flags.VIRTUAL, "straggle", "watchdog", "record", "replay"),
    *("check", "group", "outside"),
)
FLAGS.choice("algorithm", "impala", list(ALGORITHMS), "Algorithm.")
FLAGS.text("environment", "cartpole", "Environment.")
FLAGS.choice("correction", "vtrace", list(CORRECTIONS), "Correction of the lag.")
FLAGS.integer("updates", 2000, "Number of updates.", 1)
FLAGS.choice("until", "updates", ["updates", "solved"], "End: all updates, or solved.")
FLAGS.integer(
    "evaluate_every", 25, "Updates between evaluations, 100 for apex; 0: at the end.", 0
)
FLAGS.integer("copies", 0, "Environments of an actor; 0: the default.", 0)
FLAGS.integer("length", 0, "Steps of a rollout; 0: the default.", 0)
FLAGS.integer(
    "batch", 0, "Rollouts, or transitions of apex, of an update; 0: the default.", 0
)
FLAGS.integer("lag", 3, "Bound of the lag of a rollout in updates.", 0)
FLAGS.integer("learners", 1, "Number of learners of impala and seed.", 1)
FLAGS.integer("shards", 0, "Terms of the sum of gradients; 0: one per learner.", 0)
FLAGS.integer("inference", 0, "Largest number of actors in a batch of seed; 0: all.", 0)
FLAGS.integer("replays", 1, "Number of replays of apex.", 1)
FLAGS.integer("servers", 1, "Number of servers of a3c.", 1)
FLAGS.choice("consistency", "async", list(CONSISTENCIES), "Consistency of a3c.")
FLAGS.integer("staleness", 3, "Staleness bound of ssp and essp.", 0)
FLAGS.text("widths", "", "Units of the hidden layers, as 64,64; empty: the default.")
FLAGS.text("optimizer", "", "Optimizer; empty: the default.")
FLAGS.number("lr", 0.0, "Learning rate; 0: the default.", 0)
FLAGS.reducer()
FLAGS.choice("allreduce", "tree", list(ALLREDUCE), "All-reduce of learners.")
FLAGS.switch("elastic", False, "Continuation of the run without dead actors.")
FLAGS.text("resume", None, "Run folder to continue.")
FLAGS.number("save_every", 0.0, "Seconds between checkpoints; 0: when stopped.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    environment = find(FLAGS.environment)
    algorithm, chosen = ALGORITHMS[FLAGS.algorithm], settings(FLAGS)
    path = folder.path(FLAGS.out or FLAGS.resume, "rl")
    load = cache(partial(algorithm.problem, FLAGS, environment, chosen))
    with interruptible() as stopped:
        compiling.enable_cache()

        def program(comm: CountedComm) -> dict[str, Any]:
            problem = first_of_each_host(comm, load)
            console = writers.console(
                FLAGS.updates,
                unit="update",
                row_text=report.progress,
                summary_text=report.summary_text,
            )
            with writing.run_writer(
                path,
                FLAGS,
                comm,
                console,
                writers.collector(partial(report.draw, path / "returns")),
                append=bool(FLAGS.resume),
                sentence=report.sentence,
            ) as writer:
                summary, done = train_rank(FLAGS, comm, problem, path, writer, stopped)
                if comm.rank == 0:
                    writer.summary(summary)
            if not done:
                raise flags.Stopped(
                    "stopped before the last update; to resume, pass the same flags "
                    f"and --resume={path}"
                )
            return summary

        return flags.ranks(program, FLAGS)


if __name__ == "__main__":
    flags.run(main)
