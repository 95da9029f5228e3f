"""Waiting, staleness and convergence of every consistency, by delay distribution.

python experiments/consistency.py                     8 virtual ranks, 2 are servers
python experiments/consistency.py --simulate=64       64 virtual ranks, 2 are servers
python experiments/consistency.py --network=1,0,0     a latency of one second
mpirun -n 8 python experiments/consistency.py         real ranks that sleep
python experiments/consistency.py --problem=generated without the MovieLens file

Matrix factorisation by SGD with the square loss. A worker computes its part of a
minibatch in X seconds, drawn from one of --laws; real workers sleep --scale X seconds.
The learning rate, 40, was searched: at 20 all consistencies converge, at 60 SSP and
ESSP with s = 10 both diverge when all workers are equally fast.

Cost: 22 s of one core; 42 s for 64 ranks; real ranks 41 s on 2 cores.
Result: SSP with s = 10 diverges and ESSP does not when workers are equally fast, nearly
so, or messages are slow; when only computation varies, neither diverges. At
X = 1 + Exp(0.5) waiting falls from 49 % of a worker's time to 0, and the run takes 46 %
less time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags
from studies.server.claims import CONSISTENCY
from studies.server.comparison import Case, Run, compare
from studies.server.consistency_report import (
    COLUMNS,
    NEAR,
    case,
    conclude,
    draw,
    last_objective,
    summarize,
)
from studies.server.flags import parse_consistency
from studies.server.problems import PROBLEMS, shards

from dml.sim.delays import delay_distribution
from dml.types import CountedComm

CONSISTENCIES = (
    "bsp,ssp:0,ssp:2,ssp:3,ssp:5,ssp:10,essp:0,essp:10,async,softsync:1,backup:1"
)
LAWS = "constant:1;shifted_exponential:1,3;shifted_exponential:1,0.5"
SETS = ["factors", "generated"]
MAX_CLOCKS = (60, 30)  # clocks of virtual and of real ranks, at most
RANKS = 8  # virtual ranks of a run without mpirun

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.choice("problem", SETS[0], SETS, "Data set of ratings.")
FLAGS.text(
    "consistency",
    CONSISTENCIES,
    "Consistencies, each with its s, n or b after a colon.",
)
FLAGS.text("laws", LAWS, "Delay distributions of a worker, separated by semicolons.")
FLAGS.integer("servers", 0, "Number of servers; 0 uses 1 rank in 4, at most 2.", 0)
FLAGS.integer(
    "clocks",
    0,
    "Number of minibatches; 0 uses 60, or 30 if real; fewer for many ranks.",
    0,
)
FLAGS.integer("batch", 0, "Ratings in a minibatch; 0 uses the problem's default.", 0)
FLAGS.integer("snapshots", 4, "Clocks between two evaluations.", 1)
FLAGS.number("lr", 0.0, "Step size of SGD; 0 uses the problem's default.", 0)
FLAGS.number(
    "target",
    0.0,
    "Target objective; 0 uses the last objective of the first run, plus 2 %.",
    0,
)
FLAGS.number("scale", 0.006, "Seconds that a real worker sleeps per unit of X.", 1e-4)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Compare with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    rules = {name: parse_consistency(name) for name in FLAGS.consistency.split(",")}
    for text in FLAGS.laws.split(";"):
        delay_distribution(text)  # raises if the text is wrong
    defaults = PROBLEMS[FLAGS.problem]
    update = shards(defaults, "sgd", FLAGS.lr or defaults.rates["sgd"])

    def trials(comm: CountedComm, run: Run) -> Iterator[Case | None]:
        servers = FLAGS.servers or min(2, max(1, comm.size // 4))
        workers, real = comm.size - servers, not comm.platform.virtual
        clocks = FLAGS.clocks or max(16, min(MAX_CLOCKS[real], 1000 // max(1, workers)))
        if real:  # compile before the first measured run
            run(update, next(iter(rules.values())), servers=servers, clocks=1)
        target = FLAGS.target
        for delays in FLAGS.laws.split(";"):
            for name, rule in rules.items():
                result = run(update, rule, servers=servers, law=delays, clocks=clocks)
                if result:
                    target = target or NEAR * last_objective(result)
                yield result and case(result, name, delays, target)

    return compare(
        FLAGS,
        "consistency",
        RANKS,
        trials,
        columns=COLUMNS,
        summarize=summarize,
        draw=draw,
        claims=CONSISTENCY,
        conclude=conclude,
    )


if __name__ == "__main__":
    flags.run(main)
