"""Time to an accuracy of Downpour and of synchronous SGD and AdaGrad (Dean 2012).

python experiments/downpour.py                              20 virtual ranks, 4 serve
python experiments/downpour.py --n_push=4 --n_fetch=4
mpirun -n 8 python experiments/downpour.py --servers=1 --clocks=60

All runs have the same minibatches. Downpour applies gradients as they come, in step
their sum; each takes the rate of --lr with which its accuracy is first at --target, or
highest. One worker in eight is four times slower; all draw their delays from --law.

Cost: twelve runs of 80 minibatches, 42 s of one core.
Result: Downpour is at 0.95 in 127 virtual seconds with SGD, 136 with AdaGrad; in step
that takes 651 and 542. Waiting is 71 % of a worker's time in step.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from lab import flags
from studies.server.claims import DOWNPOUR
from studies.server.downpour_report import COLUMNS, case, drawn, summarised
from studies.server.flags import images
from studies.server.problems import PROBLEMS, shards
from studies.server.studies import GOES_ON, Case, Run, compared

from dml.sim.delays import law
from dml.types import CountedComm
from dml.wire.server.consistency import Choice, consistency

RANKS = 20
WAYS = {  # their consistency and optimizer
    "Downpour SGD": ("async", "sgd"),
    "Downpour AdaGrad": ("async", "adagrad"),
    "sync SGD": ("bsp", "sgd"),
    "sync AdaGrad": ("bsp", "adagrad"),
}

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
images(FLAGS, servers=4, batch=256, clocks=80, snapshots=4)
FLAGS.text("lr", "0.3,0.6,1.2", "Rates of SGD that each strategy tries.")
FLAGS.text("adagrad_lr", "0.1,0.2,0.4", "Rates of AdaGrad that each strategy tries.")
FLAGS.text("law", "shifted_exponential:1,1*1,1,1,1,1,1,1,0.25", "Delay distribution.")
FLAGS.integer("n_push", 1, "Clocks after which Downpour pushes.", 1)
FLAGS.integer("n_fetch", 1, "Clocks after which Downpour pulls.", 1)
FLAGS.number("target", 0.95, "Accuracy to reach.", 1e-4)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare as the flags say; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    tried = {
        "sgd": flags.numbers(FLAGS, "lr"),
        "adagrad": flags.numbers(FLAGS, "adagrad_lr"),
    }
    law(FLAGS.law)  # is one
    make = cache(partial(shards, PROBLEMS[FLAGS.problem]))

    def trials(comm: CountedComm, run: Run) -> Iterator[Case | None]:
        for name, (way, optimizer) in WAYS.items():
            free = way == "async"  # the others push and pull every clock
            choice = Choice(pull_period=FLAGS.n_fetch if free else 0)
            habits = GOES_ON._replace(pushes=FLAGS.n_push if free else 1)
            rule = partial(consistency, way, choice)
            for rate in tried[optimizer]:
                found = run(make(optimizer, rate), rule, habits, law=FLAGS.law)
                yield found and case(found, name, rate, FLAGS.target)

    return compared(
        FLAGS,
        "downpour",
        RANKS,
        trials,
        columns=COLUMNS,
        summarised=summarised,
        drawn=drawn,
        claims=DOWNPOUR,
    )


if __name__ == "__main__":
    flags.run(main)
