"""Time to an accuracy: Downpour and synchronous SGD and AdaGrad (Dean 2012).

python experiments/downpour.py                           20 virtual ranks, 4 are servers
python experiments/downpour.py --n_push=4 --n_fetch=4
mpirun -n 8 python experiments/downpour.py --servers=1 --clocks=60

All runs train on the same minibatches. Downpour applies each gradient as it arrives;
synchronous training applies their sum. Each strategy uses the learning rate that
reaches --target first, or has the highest accuracy. Delays are drawn from --law; by
default one worker in eight is four times slower.

Cost: twelve runs of 80 minibatches, 42 s of one core.
Result: Downpour reaches 0.95 in 127 virtual seconds with SGD and 136 with AdaGrad;
synchronous training takes 651 and 542, and its workers wait for 71 % of the time.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from lab import flags
from studies.server.claims import DOWNPOUR
from studies.server.comparison import SKIP_NONFINITE, Case, Run, compare
from studies.server.downpour_report import COLUMNS, case, conclude, draw, summarize
from studies.server.flags import images
from studies.server.problems import PROBLEMS, shards

from dml.sim.delays import delay_distribution
from dml.types import CountedComm
from dml.wire.server.consistency import Choice, consistency

RANKS = 20
STRATEGIES = {  # consistency and optimizer
    "Downpour SGD": ("async", "sgd"),
    "Downpour AdaGrad": ("async", "adagrad"),
    "sync SGD": ("bsp", "sgd"),
    "sync AdaGrad": ("bsp", "adagrad"),
}

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
images(FLAGS, servers=4, batch=256, clocks=80, snapshots=4)
FLAGS.text("lr", "0.3,0.6,1.2", "Learning rates of SGD to try.")
FLAGS.text("adagrad_lr", "0.1,0.2,0.4", "Learning rates of AdaGrad to try.")
FLAGS.text("law", "shifted_exponential:1,1*1,1,1,1,1,1,1,0.25", "Delay distribution.")
FLAGS.integer("n_push", 1, "Push period of Downpour in clocks.", 1)
FLAGS.integer("n_fetch", 1, "Pull period of Downpour in clocks.", 1)
FLAGS.number("target", 0.95, "Target accuracy.", 1e-4)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    tried = {
        "sgd": flags.numbers(FLAGS, "lr"),
        "adagrad": flags.numbers(FLAGS, "adagrad_lr"),
    }
    delay_distribution(FLAGS.law)  # raises if the text is wrong
    make = cache(partial(shards, PROBLEMS[FLAGS.problem]))

    def trials(comm: CountedComm, run: Run) -> Iterator[Case | None]:
        for name, (protocol, optimizer) in STRATEGIES.items():
            asynchronous = protocol == "async"  # bsp pushes and pulls every clock
            choice = Choice(pull_period=FLAGS.n_fetch if asynchronous else 0)
            pushes = FLAGS.n_push if asynchronous else 1
            rule = partial(consistency, protocol, choice)
            for rate in tried[optimizer]:
                options = SKIP_NONFINITE._replace(push_period=pushes)
                result = run(make(optimizer, rate), rule, options, law=FLAGS.law)
                yield result and case(result, name, rate, FLAGS.target)

    return compare(
        FLAGS,
        "downpour",
        RANKS,
        trials,
        columns=COLUMNS,
        summarize=summarize,
        draw=draw,
        claims=DOWNPOUR,
        conclude=conclude,
    )


if __name__ == "__main__":
    flags.run(main)
