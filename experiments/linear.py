"""Logistic regression on handwritten digits by synchronous data parallel.

python experiments/linear.py                                   one rank
mpirun -n 4 python experiments/linear.py --allreduce=ring      real ranks
python experiments/linear.py --simulate=4 --allreduce=ring     virtual ranks
python experiments/linear.py --strategy=serial                 serial baseline
python experiments/linear.py --strategy=./mine.py:train        own strategy

Cost: 300 steps of 64 examples, 4 s of one core; the steps with compilation take 0.6 s.
Result: 0.964 of 360 held-out digits correct; real and virtual ranks have equal bits.
"""

from itertools import islice
from typing import Any

from lab import estimates, flags, timelines, training

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
FLAGS.integer("evaluate_every", 50, "Steps between evaluations.", 1)


def main(argv: list[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    problem = Task(logistic(FEATURES, CLASSES, FLAGS.l2), *digits()).problem(FLAGS.seed)

    def train(comm: CountedComm) -> training.Training:
        train_by = strategy(FLAGS.strategy, problem, comm.size)
        allreduce = flags.allreduce(FLAGS.allreduce, FLAGS, comm.size)
        estimates.warn_of_updates(FLAGS, comm, 1 + (FEATURES + 1) * CLASSES)
        data = minibatches(problem.examples, FLAGS.batch, FLAGS.seed)
        update = make(FLAGS.optimizer, FLAGS.lr)
        timer = timelines.timer(comm, comm.Wtime)
        options = extend.accepted(train_by, {"reducer": exact(allreduce)})
        steps = train_by(problem, data, update, comm=comm, timer=timer, **options)
        steps = islice(steps, FLAGS.steps)
        return training.Training(problem, steps, FLAGS.evaluate_every)

    return training.run(FLAGS, "linear", train)


if __name__ == "__main__":
    flags.run(main)
