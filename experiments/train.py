"""Training of a problem by a strategy; both are built in or from your own file.

python experiments/train.py                                          digits, one rank
mpirun -n 4 python experiments/train.py --problem=./mine.py:make     own problem
mpirun -n 4 python experiments/train.py --strategy=./mine.py:train   own strategy
mpirun -n 4 python experiments/train.py --problem=svm --strategy=server \\
    --consistency=ssp --staleness=2
python experiments/train.py --simulate=8 --strategy=local --options=every=8
python experiments/train.py --problem=completion --strategy=hogwild --options=threads=2

An own problem is a function () -> dml.Problem. An own strategy is a generator function
(problem, batches, update, *, comm, timer) of dml.Step. Its parameters without a
default, if any, are named reducer, allreduce, batch or axes; --options sets the others.

Cost: 300 steps of 48 examples, 650 parameters: 4 s of one core.
Result: 0.961 of the 360 held-out digits correct. One rank is bit-identical to serial.
"""

from collections.abc import Sequence
from typing import Any

from lab import compiling, flags, training
from studies.training import arguments

from dml import extend
from dml.problems import PROBLEMS, find_problem
from dml.types import CountedComm

FLAGS = flags.define("seed", *flags.RANKS, *flags.ALLREDUCES, *flags.TIMELINE)
FLAGS.extensible("problem", "linear", PROBLEMS, extend.PROBLEMS, "Problem to train.")
FLAGS.define_strategy(arguments.NAMES)
FLAGS.text("options", "", "Options of the strategy, as name=value,name=value.")
FLAGS.define_allreduce("the gradients")
FLAGS.reducer()
FLAGS.adversaries()
FLAGS.text("optimizer", "", "Update of the parameters; empty: the problem's default.")
FLAGS.number("lr", 0.0, "Step size; 0 uses the problem's default.", 0)
FLAGS.integer("batch", 0, "Examples in a minibatch; 0 uses the problem's default.", 0)
FLAGS.integer("steps", 300, "Number of updates; of epochs with hogwild, average.", 1)
FLAGS.integer("evaluate_every", 50, "Steps between evaluations; 0: only at the end.", 0)
FLAGS.integer("servers", 0, "Number of servers; 0 uses 1 rank in 4.", 0)
FLAGS.define_consistency("bsp", "the workers")
FLAGS.integer("staleness", 3, "Staleness bound of ssp and essp, in clocks.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv, arguments.ON_DEVICES)
    compiling.enable_cache()

    def steps(comm: CountedComm) -> training.Training:
        return arguments.training(FLAGS, find_problem(FLAGS.problem), comm)

    on_devices = FLAGS.strategy in arguments.ON_DEVICES
    return training.run(FLAGS, "train", steps, on_devices)


if __name__ == "__main__":
    flags.run(main)
