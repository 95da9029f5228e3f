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
impala  actors send rollouts; learners send params, and compute updates with V-trace
seed    actors send observations; learners compute actions and updates, with V-trace
apex    actors send transitions to replays, which send batches by priority to a learner

The first ranks are learners, followed by the replays of apex; the last ranks are the
servers of a3c. --straggle is the delay distribution of a rollout or of a gradient.

Cost: with --until=solved, 8 ranks of 2 cores train 3 to 6 s on CartPole by impala and
a3c, 5 to 11 s by seed, and 10 s more with the start of the ranks and the figures.
Result: a mean return of 475 or more; the replay of a recorded run has the same sha256.
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
from dml.runs.results import INTERRUPTED
from dml.train import interruptible
from dml.types import CountedComm
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import first_of_each_host

FLAGS = flags.define("seed", *flags.RANKS, *flags.ORDER, *flags.ALLREDUCES)
FLAGS.choice("algorithm", "impala", list(ALGORITHMS), "Algorithm.")
FLAGS.text("environment", "cartpole", "Environment; see docs/environments.md.")
FLAGS.choice("correction", "vtrace", list(CORRECTIONS), "Correction of the policy lag.")
FLAGS.integer("updates", 2000, "Number of updates; of a3c: of clocks.", 1)
FLAGS.choice("until", "updates", ["updates", "solved"], "End: all updates, or solved.")
FLAGS.integer(
    "evaluate_every", 25, "Evaluation interval in updates, 100 for apex; 0: at end.", 0
)
FLAGS.integer("copies", 0, "Number of environments of an actor; 0: the default.", 0)
FLAGS.integer("length", 0, "Number of steps of a rollout; 0: the default.", 0)
FLAGS.integer(
    "batch", 0, "Rollouts, or transitions of apex, per update; 0: the default.", 0
)
FLAGS.integer("lag", 3, "Bound of the lag of impala and seed in updates.", 0)
FLAGS.integer("learners", 1, "Number of learners of impala and seed.", 1)
FLAGS.integer("shards", 0, "Number of gradients in a sum; 0: one per learner.", 0)
FLAGS.integer("inference", 0, "Largest number of actors in a batch of seed; 0: all.", 0)
FLAGS.integer("replays", 1, "Number of replays of apex.", 1)
FLAGS.integer("servers", 1, "Number of servers of a3c.", 1)
FLAGS.define_consistency("async", "a3c")
FLAGS.integer("staleness", 3, "Staleness bound of ssp and essp.", 0)
FLAGS.text("widths", "", "Units of the hidden layers, such as 64,64; empty: default.")
FLAGS.text("optimizer", "", "Optimizer; empty: the default.")
FLAGS.number("lr", 0.0, "Learning rate; 0: the default.", 0)
FLAGS.reducer()
FLAGS.choice("allreduce", "tree", list(ALLREDUCE), "All-reduce of the learners.")
FLAGS.switch("elastic", False, "Continuation of the run when actors die.")
FLAGS.text("resume", None, "Run folder to continue.")
FLAGS.number("save_every", 0.0, "Seconds between checkpoints; 0: when stopped.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    environment, names = find(FLAGS.environment), report.names(FLAGS)
    algorithm, chosen = ALGORITHMS[FLAGS.algorithm], settings(FLAGS)
    path = folder.path(FLAGS.out or FLAGS.resume, "rl")
    load = cache(partial(algorithm.problem, FLAGS, environment, chosen))
    with interruptible() as stopped:
        compiling.enable_cache()

        def program(comm: CountedComm) -> dict[str, Any]:
            problem = first_of_each_host(comm, load)
            console = writers.console(
                FLAGS.updates,
                unit=names.steps.removesuffix("s"),
                row_text=report.progress,
                summary_text=partial(report.summary_text, names),
            )
            with writing.run_writer(
                path,
                FLAGS,
                comm,
                console,
                writers.collector(partial(report.draw, path / "returns")),
                conclude=partial(report.conclude, names),
            ) as writer:
                summary, done = train_rank(FLAGS, comm, problem, path, writer, stopped)
                if not done:
                    summary["status"] = INTERRUPTED
                if comm.rank == 0:
                    writer.summary(summary)
            if not done:
                raise flags.Stopped(
                    f"stopped before the last update; to resume, pass --resume={path}"
                )
            return summary

        return flags.ranks(program, FLAGS)


if __name__ == "__main__":
    flags.run(main)
