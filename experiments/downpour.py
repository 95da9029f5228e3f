"""Downpour with SGD and AdaGrad, and both in step: who is accurate first? (Dean 2012)

python experiments/downpour.py                              20 virtual ranks, 4 serve
python experiments/downpour.py --n_push=4 --n_fetch=4
mpirun -n 8 python experiments/downpour.py --servers=1 --clocks=60

All go through the same minibatches. Downpour applies gradients as they come, in step
their sum; each takes the rate of --lr with which its accuracy is first at --target, or
highest. One worker in eight is four times slower; all draw their delays from --law.

Cost: twelve runs of 80 minibatches, 42 s of one core.
Result: Downpour is at 0.95 in 127 virtual seconds with SGD, 136 with AdaGrad; in step
that takes 651 and 542. Waiting is 71 % of a worker's time in step.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import flags
import writing
from downpour_report import COLUMNS, Case, best, drawn, row, summarised
from server_claims import DOWNPOUR
from server_problems import PROBLEMS, shards
from server_runs import Plan, napping, ran, rates, virtual_if_alone

from dml.metrics import runs, writers
from dml.sim.laws import law
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Make, Setup
from dml.strategies.server.workers import SKIP, Habits
from dml.types import CountedComm
from dml.wire.messages import first_of_each_host
from dml.wire.messages.consistency import Choice, consistency

RANKS = 20
DENSE = [name for name, stated in PROBLEMS.items() if stated.dense]
WAYS = {  # their consistency and optimizer
    "Downpour SGD": ("async", "sgd"),
    "Downpour AdaGrad": ("async", "adagrad"),
    "sync SGD": ("bsp", "sgd"),
    "sync AdaGrad": ("bsp", "adagrad"),
}

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
number = partial(flags.number, lower_bound=1e-4, flag_values=FLAGS)
flags.choice("problem", "digits", DENSE, "Images to learn.", flag_values=FLAGS)
text("lr", "0.3,0.6,1.2", "Rates of SGD that each way tries.")
text("adagrad_lr", "0.1,0.2,0.4", "Rates of AdaGrad, likewise.")
text("law", "shifted_exponential:1,1*1,1,1,1,1,1,1,0.25", "Of a worker's computing.")
integer("n_push", 1, "Clocks after which Downpour pushes.")
integer("n_fetch", 1, "Clocks after which Downpour pulls.")
integer("servers", 4, "Ranks that serve.")
integer("batch", 256, "Images in a minibatch, over all workers.")
integer("clocks", 80, "Minibatches.")
integer("snapshots", 4, "Clocks between two evaluations.")
number("target", 0.95, "Accuracy to be reached.")
number("scale", 0.02, "Seconds that a real worker sleeps for each of --law.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare as the flags say; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    tried = {"sgd": rates(FLAGS.lr), "adagrad": rates(FLAGS.adagrad_lr, "adagrad_lr")}
    law(FLAGS.law)  # is one
    path = runs.path(FLAGS.out, "downpour")
    virtual_if_alone(FLAGS, RANKS)
    stated = PROBLEMS[FLAGS.problem]
    load = cache(partial(stated.make, FLAGS.seed, 0.0))
    make = cache(partial(shards, stated))

    def program(comm: CountedComm) -> dict[str, Any]:
        problem, cases = first_of_each_host(comm, load), []
        comm = napping(comm, FLAGS.scale)
        scale = 1.0 if comm.platform.virtual else FLAGS.scale
        plan = Plan(FLAGS.batch, FLAGS.clocks, FLAGS.seed, FLAGS.law, scale)
        table = writers.table(COLUMNS)
        with writing.first(path, FLAGS, comm, table, claims=DOWNPOUR) as writer:
            for name, (way, optimizer) in WAYS.items():
                for rate in tried[optimizer]:
                    update, own = make(optimizer, rate)
                    setup = settings(comm, own, way)
                    found = ran(comm, problem, update, setup, plan)
                    if found:
                        cases.append(Case(name, rate, found, FLAGS.target))
                        writer.row(row(cases[-1]))
            chosen = best(cases)
            summary = summarised(chosen) if cases else {}
            if cases:
                drawn(path, chosen)
                writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


def settings(comm: CountedComm, own: Make, way: str) -> Setup:
    """Return who does what; who is in step pushes and pulls every clock."""
    who, free = roles(comm.size, FLAGS.servers), way == "async"
    rule = consistency(way, Choice(fetches=FLAGS.n_fetch if free else 0), who.workers)
    # who diverges goes on, and is counted
    habits = Habits(FLAGS.n_push if free else 1, on_nonfinite=SKIP)
    return Setup(who, rule, own, habits, snapshots=FLAGS.snapshots)


if __name__ == "__main__":
    flags.run(main)
