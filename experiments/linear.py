"""Logistic regression on handwritten digits by synchronous data parallel.

python experiments/linear.py                                   one rank
mpirun -n 4 python experiments/linear.py --allreduce=ring      real ranks
python experiments/linear.py --simulate=4 --allreduce=ring     virtual ranks
python experiments/linear.py --strategy=serial                 serial baseline
python experiments/linear.py --strategy=./mine.py:train        own strategy

Cost: 300 steps of 64 examples, 650 parameters: 4 s of one core, of which the steps with
compilation take 0.6 s.
Result: 0.964 of the 360 held-out digits correct (0.964 to 0.969 by seeds 0 to 4). Loss
curves of equally many real and virtual ranks are bit-identical, and those of one rank
and of serial, too.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from lab import estimates, flags, timelines, training
from lab.training import Training

from dml import extend
from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import minibatches
from dml.models.networks.logistic import logistic
from dml.strategies import strategy
from dml.task import Task
from dml.types import CountedComm
from dml.update.dense import OPTIMIZERS, make
from dml.wire.reducers.exact import exact

FLAGS = flags.define("seed", *flags.RANKS, *flags.ALLREDUCES, *flags.TIMELINE)
FLAGS.define_strategy(["serial", "synchronous"])
FLAGS.define_allreduce("the gradients")
FLAGS.choice("optimizer", "momentum", list(OPTIMIZERS), "Update of the parameters.")
FLAGS.number("lr", 0.1, "Step size of the optimizer.", 0)
FLAGS.number("l2", 0.0, "L2 weight.", 0)
FLAGS.integer("batch", 64, "Examples in a minibatch, over all ranks.", 1)
FLAGS.integer("steps", 300, "Number of updates.", 1)
FLAGS.integer(
    "evaluate_every", 50, "Steps between evaluations on the held-out digits.", 1
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    problem = Task(logistic(FEATURES, CLASSES, FLAGS.l2), *digits()).problem(FLAGS.seed)

    def train(comm: CountedComm) -> Training:
        train_by = strategy(FLAGS.strategy, problem, comm.size)
        allreduce = flags.allreduce(FLAGS.allreduce, FLAGS, comm.size)
        estimates.warn_of_updates(FLAGS, comm, 1 + (FEATURES + 1) * CLASSES)
        steps = train_by(
            problem,
            minibatches(problem.examples, FLAGS.batch, FLAGS.seed),
            make(FLAGS.optimizer, FLAGS.lr),
            comm=comm,
            timer=timelines.timer(comm, comm.Wtime),
            **extend.accepted(train_by, {"reducer": exact(allreduce)}),
        )
        return Training(problem, islice(steps, FLAGS.steps), FLAGS.evaluate_every)

    return training.run(FLAGS, "linear", train)


if __name__ == "__main__":
    flags.run(main)
