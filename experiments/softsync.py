"""Stale gradients at a fixed and at a staleness-scaled learning rate (Zhang 2015).

python experiments/softsync.py                                   30 virtual workers
python experiments/softsync.py --problem=fashion_mnist --batch=960
python experiments/softsync.py --n=1,4,30 --lr=0.4

n-softsync updates with the mean of the first 30/n gradients of any workers; n = 30 is
Downpour. Hard synchronous training tries the rates of --lr. alpha0 is the lowest rate
with a test error within one percentage point of the least one. The other runs use
alpha0, fixed or divided by the staleness of each gradient.

Cost: nine runs of 120 minibatches, 38 s of one core.
Result: hard synchronous training has a test error of 2.5 % at alpha0 = 0.4. At n = 15
and 30 the fixed rate has 90.8 %, the scaled rate 5.3 and 4.2 %. The mean staleness is n
and the largest at most 2n.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

from lab import flags
from studies.server.claims import SOFTSYNC
from studies.server.comparison import Case, Run, compare
from studies.server.flags import images
from studies.server.problems import PROBLEMS, shards
from studies.server.runs import broadcast_number
from studies.server.softsync_report import (
    COLUMNS,
    case,
    conclude,
    draw,
    lowest_good_rate,
    summarize,
)

from dml.sim.delays import delay_distribution
from dml.strategies.server.roles import roles
from dml.types import CountedComm
from dml.wire.server.consistency import Choice, consistency

RANKS = 31  # one server and 30 workers, as published
FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
images(FLAGS, servers=1, batch=240, clocks=120, snapshots=10)
FLAGS.text("n", "1,15,30", "Values of n in n-softsync, the mean staleness.")
FLAGS.text("lr", "0.2,0.4,0.8", "Learning rates that hard synchronous training tries.")
FLAGS.text("law", "shifted_exponential:1,10", "Delay distribution of a gradient.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    alphas, ns = flags.numbers(FLAGS, "lr"), flags.integers(FLAGS, "n")
    delay_distribution(FLAGS.law)  # raises if the text is wrong
    make = cache(partial(shards, PROBLEMS[FLAGS.problem], "sgd"))

    def trials(comm: CountedComm, run: Run) -> Iterator[Case | None]:
        def trial(name: str, n: int, alpha: float, scaled: bool = False) -> Case | None:
            """Run a consistency; n is 0 for bsp, which is hard sync."""
            rule = partial(
                consistency, name, Choice(softsync=n or 1, staleness_scaled=scaled)
            )
            result = run(make(alpha), rule, law=FLAGS.law)
            return result and case(result, n, alpha, scaled)

        for n in ns:  # a number that is refused is refused before the first run
            workers = roles(comm.size, FLAGS.servers).workers
            consistency("softsync", Choice(softsync=n), workers)
        hard = []
        for alpha in alphas:
            hard.append(trial("bsp", 0, alpha))
            yield hard[-1]
        best = lowest_good_rate([case for case in hard if case])
        alpha0 = broadcast_number(comm, best)
        for n in ns:
            for scaled in (False, True):
                yield trial("softsync", n, alpha0, scaled)

    return compare(
        FLAGS,
        "softsync",
        RANKS,
        trials,
        columns=COLUMNS,
        summarize=summarize,
        draw=draw,
        claims=SOFTSYNC,
        conclude=conclude,
    )


if __name__ == "__main__":
    flags.run(main)
