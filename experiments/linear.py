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

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from lab import estimates, flags, timelines, writing
import jax
import numpy as np

from dml import extend
from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import minibatches, take
from dml.evaluation.scores import evaluate
from dml.figures import style as figures
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.runs import folder, writers
from dml.strategies import strategy
from dml.train import train
from dml.types import CountedComm, Params
from dml.update.dense import OPTIMIZERS, make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.once import once
from dml.wire.reducers.exact import exact

STRATEGIES = dict.fromkeys(["serial", "synchronous"])

FLAGS = flags.define(
    *("seed", *flags.VIRTUAL, "straggle", "watchdog", "check"),
    *("group", "outside", "timeline", "profile"),
)
FLAGS.extensible(
    *("strategy", "synchronous", STRATEGIES, extend.STRATEGIES),
    "Training strategy.",
)
FLAGS.extensible(
    *("allreduce", "auto", ALLREDUCE, extend.ALLREDUCES),
    "All-reduce of the gradients.",
)
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
    training, held_out = digits()
    model = logistic(FEATURES, CLASSES, FLAGS.l2)
    count, optimizer = len(training.targets), make(FLAGS.optimizer, FLAGS.lr)
    problem = model_problem(
        model,
        model.init(jax.random.key(FLAGS.seed)),
        examples=count,
        take=partial(take, training),
        evaluate=partial(evaluate, model, held_out),
    )
    path = folder.path(FLAGS.out, "linear")

    def program(comm: CountedComm) -> dict[str, Any]:
        comm = flags.delayed(FLAGS, comm)
        train_by = strategy(FLAGS.strategy, problem, comm.size)
        allreduce = flags.allreduce(FLAGS.allreduce, FLAGS, comm.size)
        own = extend.accepted(train_by, {"reducer": exact(allreduce)})
        if comm.platform.virtual and comm.rank == 0:
            gradient = np.zeros(1 + FEATURES * CLASSES + CLASSES, np.float32)
            groups = FLAGS.group, FLAGS.outside
            calls = estimates.allreduce_messages(
                comm, FLAGS.allreduce, gradient, *groups
            )
            what = f"{FLAGS.steps} all-reduces by {FLAGS.allreduce}"
            estimates.warn(comm, what, FLAGS.steps * calls, FLAGS.allreduce)
        batches = minibatches(count, FLAGS.batch, FLAGS.seed)
        timer = timelines.timer(comm, comm.Wtime)
        steps = train_by(problem, batches, optimizer, comm=comm, timer=timer, **own)
        with writing.run_writer(
            path,
            FLAGS,
            comm,
            writers.console(FLAGS.steps),
            figures.chart(path / "loss"),
        ) as writer:
            taken = islice(steps, FLAGS.steps)
            taken = timelines.traced(taken, comm, FLAGS.timeline, path, FLAGS.profile)

            def measure(params: Params) -> Mapping[str, Any]:
                call = partial(problem.evaluate, params)
                return once(comm, "evaluation", id(params), call)

            summary = train(taken, measure, writer, FLAGS.evaluate_every)
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


if __name__ == "__main__":
    flags.run(main)
