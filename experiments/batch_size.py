"""Where minibatches stop helping: steps and seconds to ε by batch and workers.

python experiments/batch_size.py                       diverse and repeated examples
python experiments/batch_size.py --copies=512 --batches=4,16,64,256
python experiments/batch_size.py --workers=1,2,4 --within=0.02

A batch of B has B times the gradients, and at best 1/B of the steps: up to B₀, where
they are no longer diverse (Yin 2018). Each batch has the rate, of factors of 2, that is
fastest to an objective --within the least. Repeated data has each example --copies
times. Steps have the same bits on any workers; what one takes is measured.

Cost: 26 s of one core.
Result: of 32,768 examples B₀ is 4096, with 17 steps instead of 37,888; of 512 examples,
64 times each, it is 512. At the start, the bounds of diversity are 5319 and 474. Beyond
B₀ steps hardly fall, and seconds rise.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags, writing
from studies.shared_memory.batch_size_claims import CLAIMS
from studies.shared_memory.batch_size_report import columns, drawn, row, summarised
from studies.shared_memory.batch_size_runs import (
    DATA,
    bounds,
    fastest,
    planned,
    step_seconds,
)

from dml import sim
from dml.runs import folder as runs
from dml.runs import writers
from dml.types import BadInput, Comm, CountedComm
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world

Row = dict[str, Any]
BATCHES = "1,4,16,64,128,256,512,1024,2048,4096,8192,32768"

FLAGS = flags.define("seed")
FLAGS.text("data", "all", f"Data, of {', '.join(DATA)}; or all.")
FLAGS.text("batches", BATCHES, "Examples of a batch; 1 is always tried.")
FLAGS.text("workers", "1,2", "Threads that share a batch.")
FLAGS.integer("examples", 32768, "Training examples.", 1)
FLAGS.integer("features", 4096, "Features of an example.", 1)
FLAGS.integer("nonzeros", 20, "Features of an example that are not 0.", 1)
FLAGS.integer("copies", 64, "Copies of each example in repeated data.", 1)
FLAGS.number("mu", 1e-4, "Weight of half the squared norm.", 1e-12)
FLAGS.number(
    "within", 0.05, "Distance ε of the goal, as a share of the least objective.", 1e-6
)
FLAGS.number("lr", 0.125, "Rate at which the search begins.", 1e-9)
FLAGS.integer("epochs", 60, "Epochs after which a rate is given up.", 1)
FLAGS.integer(
    "looks", 128, "Evaluations of the objective in an epoch, where batches allow.", 1
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare batches as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    begun = time.perf_counter()
    path = runs.path(FLAGS.out, "batch_size")
    batches = sorted({1, *flags.integers(FLAGS, "batches")})
    workers = sorted({1, *flags.integers(FLAGS, "workers")})
    names = flags.names(FLAGS.data, DATA, "data")
    if batches[-1] > FLAGS.examples or world().size > 1:
        raise BadInput(
            f"expected --batches of at most {FLAGS.examples} examples and one process, "
            f"got {batches[-1]} and {world().size}; pass smaller ones, or --workers"
        )
    rows: list[Row] = []

    def program(comm: Comm) -> None:
        for name in names:
            for made in compared(Metered(comm), name, batches, workers):
                rows.append(made)
                writer.row(made)

    table = writers.table(columns(workers))
    with writing.first(path, FLAGS, None, table, claims=CLAIMS) as writer:
        # a virtual rank frees its windows, of which every evaluation makes several
        sim.run(program, 1)
        summary = summarised(rows)
        summary["seconds"] = time.perf_counter() - begun
        drawn(path, rows)
        writer.summary(summary)
    return summary


def compared(
    comm: CountedComm, name: str, batches: Sequence[int], workers: Sequence[int]
) -> Iterator[Row]:
    """Train each batch to ε by its fastest rate; measure the seconds of its steps."""
    plan, rate = planned(name, FLAGS), FLAGS.lr
    first: Row | None = None
    for batch in batches:
        found = fastest(plan, batch, rate, comm)
        along = bounds(plan, batch, found, comm)
        if found.examples < math.inf:
            rate = found.rate
        took = {p: step_seconds(plan, batch, rate, comm, p) for p in workers}
        made = row(name, batch, found, along, took, first)
        first = first or made
        yield made


if __name__ == "__main__":
    flags.run(main)
