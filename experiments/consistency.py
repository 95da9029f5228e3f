"""Who waits, who is stale, who diverges: every consistency of a server, by delay.

python experiments/consistency.py                     8 virtual ranks, 2 of them serve
python experiments/consistency.py --simulate=64       64, 2 of them serve
python experiments/consistency.py --network=1,0,0     messages that take a second
mpirun -n 8 python experiments/consistency.py         real ranks, which sleep
python experiments/consistency.py --problem=generated without MovieLens' file

Matrix factorisation by SGD, square loss. A worker takes X of --laws for its part of a
minibatch; real ones sleep --scale seconds for each. The rate, 40, was searched for: at
20 all converge, at 60 SSP and ESSP of s = 10 both diverge where workers are even.

Cost: 22 s of one core; 42 s for 64 ranks; real ranks 41 s on 2 cores.
Result: SSP of s = 10 diverges and ESSP does not where workers are even, nearly even, or
messages slow; not where only computing is uneven. Waiting falls from 49 % of a worker's
time to nothing, and so do the seconds, by 46 %, at X = 1 + Exp(0.5).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import flags
import writing
from consistency_report import COLUMNS, Case, drawn, row, summarised
from server_claims import CONSISTENCY
from server_problems import PROBLEMS, shards
from server_runs import Plan, napping, ran, virtual_if_alone, way

from dml.metrics import runs, writers
from dml.sim.laws import law
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Make, Setup
from dml.strategies.server.workers import SKIP, Habits
from dml.types import CountedComm
from dml.wire.messages import first_of_each_host

WAYS = "bsp,ssp:0,ssp:2,ssp:3,ssp:5,ssp:10,essp:0,essp:10,async,softsync:1,backup:1"
LAWS = "constant:1;shifted_exponential:1,3;shifted_exponential:1,0.5"
SETS = ["factors", "generated"]
MOST = (60, 30)  # clocks of virtual and of real ranks
VIRTUAL = 8  # ranks where there are no real ones

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, flag_values=FLAGS)
number = partial(flags.number, flag_values=FLAGS)
flags.choice("problem", SETS[0], SETS, "Ratings to learn.", flag_values=FLAGS)
text("consistency", WAYS, "Of the servers, each with its s, n or b after a colon.")
text("laws", LAWS, "Of what a worker's computing takes, each after a semicolon.")
integer("servers", 0, "Ranks that serve; 0: 1 in 4, at most 2.", 0)
integer("clocks", 0, "Minibatches; 0: 60, 30 if real, fewer for many ranks.", 0)
integer("batch", 0, "Ratings in a minibatch; 0: as stated for the problem.", 0)
integer("snapshots", 4, "Clocks between two evaluations.", 1)
number("lr", 0.0, "Rate of SGD; 0: as stated for the problem.", 0)
number("target", 0.0, "Objective to be reached; 0: 2 % above the first one's last.", 0)
number("scale", 0.006, "Seconds that real workers sleep for each of X.", 1e-4)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare as the flags say; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    ways = {name: way(name) for name in FLAGS.consistency.split(",")}
    for one in FLAGS.laws.split(";"):
        law(one)
    path = runs.path(FLAGS.out, "consistency")
    virtual_if_alone(FLAGS, VIRTUAL)
    load = cache(partial(PROBLEMS[FLAGS.problem].make, FLAGS.seed, 0.0))

    def program(comm: CountedComm) -> dict[str, Any]:
        problem, cases, summary = first_of_each_host(comm, load), [], {}
        comm = napping(comm, FLAGS.scale)
        if not comm.platform.virtual:
            first, *_ = ways.values()
            *how, plan = settings(comm, first, "")
            ran(comm, problem, *how, plan._replace(clocks=1))  # compiles
        table = writers.table(COLUMNS)
        with writing.first(path, FLAGS, comm, table, claims=CONSISTENCY) as writer:
            for delays in FLAGS.laws.split(";"):
                for name, make in ways.items():
                    found = ran(comm, problem, *settings(comm, make, delays))
                    if found:
                        cases.append(Case(delays, name, found))
                        writer.row(row(cases, FLAGS.target))
            if cases:
                summary = summarised(cases)
                drawn(path, cases)
                writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


def settings(comm: Any, make: Callable, delays: str) -> tuple[Make, Setup, Plan]:
    """Return the update, how ranks share the work, and how much of it there is."""
    who = roles(comm.size, FLAGS.servers or min(2, max(1, comm.size // 4)))
    stated, real = PROBLEMS[FLAGS.problem], not comm.platform.virtual
    update, own = shards(stated, "sgd", FLAGS.lr or stated.rates["sgd"])
    clocks = FLAGS.clocks or max(16, min(MOST[real], 1000 // who.workers))
    scale = FLAGS.scale if real else 1.0
    habits = Habits(on_nonfinite=SKIP)  # who diverges goes on, and is counted
    rule, every = make(who.workers), FLAGS.snapshots
    setup = Setup(who, rule, own, habits, snapshots=every)
    batch = FLAGS.batch or stated.batch
    return update, setup, Plan(batch, clocks, FLAGS.seed, delays, scale)


if __name__ == "__main__":
    flags.run(main)
