"""Linear models of 10^6 dimensions on 256 cores: columns over ranks, and their cost.

python experiments/dimensions.py                        1 to 1,024 virtual cores
python experiments/dimensions.py --p=1,256 --alpha=2e-5          over Ethernet
mpirun -n 2 python experiments/dimensions.py            measured beside predicted
python experiments/dimensions.py --peers --examples=20000 --features=50000

Each rank stores some columns of the features, and the same part of the parameters. A
step of b rows sends b products; s steps by one all-reduce send s b products and b² for
each pair of steps; groups of ranks share a minibatch. The code of the steps runs on
virtual ranks. Computation takes the time of a stated core, messages that of a network.
--peers trains on sparse rows in turns with libraries of linear models.

Cost: 100 s of one core; with --p=256, 50 s.
Result: on dense rows, 256 cores speed up a step 72 times; 177 times with 8 steps by one
all-reduce, 221 times with 32 rows. Rows of 100 nonzero features are fastest on 1 to 16.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.dimensions import measured, peers, report, tables
from studies.dimensions.claims import CLAIMS
from studies.dimensions.steps import Machine, Processor, Technique

from dml.runs import folder
from dml.types import BadInput
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from dml.wire.costs.allreduce import Rates

FLAGS = flags.define("seed", "watchdog")
FLAGS.integer("features", 1_000_000, "Number of features.", 1, 10**8)
FLAGS.integer("nonzeros", 100, "Nonzero features of an example of sparse data.", 1)
FLAGS.integer("examples", 64, "Number of examples.", 2, 10**6)
FLAGS.text("p", "1,2,4,8,16,32,64,128,256,512,1024", "Numbers of virtual cores.")
FLAGS.integer("batch", 32, "Rows b of a minibatch.", 1, 10**6)
FLAGS.integer("steps", 8, "Steps s of an all-reduce.", 1, 10**4)
FLAGS.integer("groups", 4, "Groups of ranks of the grid; 1: no grid.", 1, 10**6)
FLAGS.number("alpha", 1e-6, "Seconds of a message.", 1e-12, 1)
FLAGS.number("beta", 1e-9, "Seconds of a byte sent.", 1e-15, 1)
FLAGS.number("gamma", 1e-10, "Seconds of a byte reduced.", 0, 1)
FLAGS.text("alphas", "2.5e-7,1e-6,4e-6", "Seconds of a message, for the best s b.")
FLAGS.integer("best_p", 256, "Number of virtual cores for the best s b.", 2, 4096)
FLAGS.integer("gap_p", 8, "Number of virtual cores for the gaps.", 1, 64)
FLAGS.number("operations", 5e10, "Floating-point operations of a core in a second.", 1)
FLAGS.switch("peers", False, "Comparison with libraries of linear models, in turns.")
FLAGS.number("bandwidth", 3.5e10, "Bytes of memory of a core in a second.", 1)


def techniques() -> list[Technique]:
    """Return the ways to step by the flags; raise BadInput if they do not fit."""
    batch, steps, groups = FLAGS.batch, FLAGS.steps, FLAGS.groups
    if batch % steps or batch % groups:
        raise BadInput(
            f"expected --batch as a multiple of --steps and --groups, got {batch}, "
            f"{steps} and {groups}; pass another --batch"
        )
    ways = [(1, 1, 1), (batch, 1, 1), (1, steps, 1), (batch // steps, steps, 1)]
    return [Technique(*way) for way in dict.fromkeys([*ways, (batch, 1, groups)])]


def arguments(ways: list[Technique]) -> tables.Arguments:
    """Return the arguments of the virtual tables by the flags."""
    sizes = sorted(set(flags.integers(FLAGS, "p")))
    most = max(*sizes, FLAGS.nonzeros)
    if most > FLAGS.features:
        raise BadInput(
            f"expected at most {FLAGS.features} cores and nonzero features, one for "
            f"each of --features, got {most}; pass fewer"
        )
    rates = Rates(FLAGS.alpha, FLAGS.beta, FLAGS.gamma)
    return tables.Arguments(
        FLAGS.examples,
        FLAGS.features,
        FLAGS.nonzeros,
        ways,
        sizes,
        Machine(Processor(FLAGS.operations, FLAGS.bandwidth), rates),
        flags.positive_numbers(FLAGS, "alphas"),
        FLAGS.best_p,
        FLAGS.gap_p,
        FLAGS.seed,
    )


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare techniques with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path, comm = folder.path(FLAGS.out, "dimensions"), Metered(world(FLAGS.watchdog))
    ways = techniques()
    given = arguments(ways)
    texts = report.titles(FLAGS.features, FLAGS.nonzeros, FLAGS.gap_p)
    console = report.console(report.tables(ways), texts, FLAGS.wide)
    judged = () if comm.size > 1 or FLAGS.peers else CLAIMS
    sizes = FLAGS.examples, FLAGS.features, FLAGS.nonzeros
    summary: dict[str, Any] = {"p": comm.size, "features": FLAGS.features}
    with writing.run_writer(
        path, FLAGS, comm, console, claims=judged, conclude=report.conclude
    ) as writer:
        if FLAGS.peers:
            for row in peers.rows(comm, *sizes, FLAGS.seed):
                writer.row({"table": "peers"} | row)
        elif comm.size > 1:
            for row in measured.rows(comm, *sizes, ways):
                writer.row({"table": "measured"} | row)
        else:
            made = writing.write_tables(writer, tables.TABLES, given)
            summary |= report.summarize(made)
            report.draw(path / "dimensions", made)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
