"""Stale gradients at a fixed rate, and at one divided by their staleness (Zhang 2015).

python experiments/softsync.py                                   30 virtual workers
python experiments/softsync.py --problem=fashion_mnist --batch=960
python experiments/softsync.py --n=1,4,30 --lr=0.4

n-softsync updates with the mean of 30/n gradients, whoever they are from; n = 30 is
Downpour. Hard sync tries every rate of --lr: the lowest that is as good as the best, to
a point of test error, is alpha0 of all others, which take it as it is, or divided by
each gradient's staleness.

Cost: nine runs of 120 minibatches, 38 s of one core.
Result: hard sync errs on 2.5 % at alpha0 = 0.4. At n = 15 and 30 the fixed rate errs on
90.8 %, the divided one on 5.3 and 4.2 %; staleness is n on the mean, never above 2n.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import flags
import writing
from server_claims import SOFTSYNC
from server_problems import PROBLEMS, shards
from server_runs import Plan, agreed, napping, ran, rates, virtual_if_alone
from softsync_report import COLUMNS, Case, drawn, lowest, row, summarised

from dml.metrics import runs, writers
from dml.sim.laws import law
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Make, Setup
from dml.strategies.server.workers import SKIP, Habits
from dml.types import CountedComm
from dml.wire.messages import first_of_each_host
from dml.wire.messages.consistency import Choice, consistency

RANKS = 31  # a server and, as published, 30 workers
DENSE = [name for name, stated in PROBLEMS.items() if stated.dense]

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
flags.choice("problem", "digits", DENSE, "Images to learn.", flag_values=FLAGS)
text("n", "1,15,30", "Of n-softsync: its mean staleness.")
text("lr", "0.2,0.4,0.8", "Rates that hard sync tries.")
text("law", "shifted_exponential:1,10", "Of what a gradient's computing takes.")
integer("servers", 1, "Ranks that serve.")
integer("batch", 240, "Images in a minibatch, over all workers.")
integer("clocks", 120, "Minibatches.")
integer("snapshots", 10, "Clocks between two evaluations.")
number = partial(flags.number, lower_bound=1e-4, flag_values=FLAGS)
number("scale", 0.02, "Seconds that a real worker sleeps for each of --law.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare as the flags say; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    alphas = rates(FLAGS.lr)
    splits = [flags.positive(n, "n") for n in FLAGS.n.split(",")]
    law(FLAGS.law)  # is one
    path = runs.path(FLAGS.out, "softsync")
    virtual_if_alone(FLAGS, RANKS)
    stated = PROBLEMS[FLAGS.problem]
    load = cache(partial(stated.make, FLAGS.seed, 0.0))
    make = cache(partial(shards, stated, "sgd"))

    def program(comm: CountedComm) -> dict[str, Any]:
        problem = first_of_each_host(comm, load)
        comm = napping(comm, FLAGS.scale)
        plan = planned(comm)
        cases: list[Case] = []
        table = writers.table(COLUMNS)
        with writing.first(path, FLAGS, comm, table, claims=SOFTSYNC) as writer:

            def case(way: str, n: int, alpha: float, damped: bool = False) -> None:
                rule = Choice(softsync=n or 1, damped=damped)
                update, own = make(alpha)
                who = setup(comm, own, way, rule)
                found = ran(comm, problem, update, who, plan)
                if found:
                    cases.append(Case(n, alpha, damped, found))
                    writer.row(row(cases[-1]))

            for alpha in alphas:
                case("bsp", 0, alpha)
            alpha0 = agreed(comm, lowest(cases) if cases else None)
            for n in splits:
                for damped in (False, True):
                    case("softsync", n, alpha0, damped)
            summary = summarised(cases, alpha0) if cases else {}
            if cases:
                drawn(path, cases, alpha0)
                writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


def setup(comm: CountedComm, own: Make, way: str, choice: Choice) -> Setup:
    who = roles(comm.size, FLAGS.servers)
    rule = consistency(way, choice, who.workers)
    habits = Habits(on_nonfinite=SKIP)  # who diverges goes on, and is counted
    return Setup(who, rule, own, habits, snapshots=FLAGS.snapshots)


def planned(comm: CountedComm) -> Plan:
    scale = 1.0 if comm.platform.virtual else FLAGS.scale
    return Plan(FLAGS.batch, FLAGS.clocks, FLAGS.seed, FLAGS.law, scale)


if __name__ == "__main__":
    flags.run(main)
