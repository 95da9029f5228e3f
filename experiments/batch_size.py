"""The largest useful minibatch: steps and seconds to ε by batch size and workers.

python experiments/batch_size.py                       diverse and repeated examples
python experiments/batch_size.py --copies=512 --batches=4,16,64,256
python experiments/batch_size.py --workers=1,2,4 --within=0.02

A batch of size B needs at best 1/B of the steps, up to a size B₀ that the diversity of
the gradients bounds (Yin 2018). For each batch size the learning rate (a power of 2
times --lr) is searched that reaches the objective fastest; the target is within a share
--within of the least objective. Repeated data contains each example --copies times. The
results are bit-identical for every number of workers; the seconds of a step are
measured.

Cost: 26 s of one core.
Result: B₀ is 4096 for 32,768 different examples (17 steps instead of 37,888) and 512
for 512 examples repeated 64 times. The bounds by diversity, at the start, are 5319 and
474. Above B₀ the number of steps hardly falls and the seconds rise.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags, writing
from studies.shared_memory.batch_size_claims import CLAIMS
from studies.shared_memory.batch_size_report import (
    columns,
    conclude,
    draw,
    row,
    summarize,
)
from studies.shared_memory.batch_size_runs import (
    DATA,
    bounds,
    plan_from_flags,
    search_rate,
    step_seconds,
)

from dml import sim
from dml.runs import folder, writers
from dml.types import BadInput, Comm, CountedComm
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world

Row = dict[str, Any]
BATCHES = "1,4,16,64,128,256,512,1024,2048,4096,8192,32768"

FLAGS = flags.define("seed")
FLAGS.text("data", "all", f"Data, of {', '.join(DATA)}; or all.")
FLAGS.text("batches", BATCHES, "Batch sizes in examples; 1 is added.")
FLAGS.text("workers", "1,2", "Numbers of threads that share a batch.")
FLAGS.integer("examples", 32768, "Number of training examples.", 1)
FLAGS.integer("features", 4096, "Number of features.", 1)
FLAGS.integer("nonzeros", 20, "Number of nonzero features of an example.", 1)
FLAGS.integer("copies", 64, "Number of copies of each example in repeated data.", 1)
FLAGS.number("mu", 1e-4, "Weight of half the squared norm.", 1e-12)
FLAGS.number(
    "within", 0.05, "Target ε above the least objective, as a share of it.", 1e-6
)
FLAGS.number("lr", 0.125, "First learning rate of the search.", 1e-9)
FLAGS.integer("epochs", 60, "Number of epochs after which a rate is abandoned.", 1)
FLAGS.integer(
    "looks", 128, "Number of evaluations of the objective in an epoch, at most.", 1
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare batches with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    begun = time.perf_counter()
    path = folder.path(FLAGS.out, "batch_size")
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
            for row_of_batch in compared(Metered(comm), name, batches, workers):
                rows.append(row_of_batch)
                writer.row(row_of_batch)

    table = writers.table(columns(workers), FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=conclude
    ) as writer:
        # Every evaluation allocates windows; a virtual rank frees them.
        sim.run(program, 1)
        summary = summarize(rows)
        summary["seconds"] = time.perf_counter() - begun
        draw(path, rows)
        writer.summary(summary)
    return summary


def compared(
    comm: CountedComm, name: str, batches: Sequence[int], workers: Sequence[int]
) -> Iterator[Row]:
    """Train with each batch size to ε at its fastest rate; yield the rows."""
    plan, rate = plan_from_flags(name, FLAGS), FLAGS.lr
    first: Row | None = None
    for batch in batches:
        search = search_rate(plan, batch, rate, comm)
        diversity = bounds(plan, batch, search, comm)
        if search.examples < math.inf:
            rate = search.rate
        seconds = {p: step_seconds(plan, batch, rate, comm, p) for p in workers}
        measured = row(name, batch, search, diversity, seconds, first)
        first = first or measured
        yield measured


if __name__ == "__main__":
    flags.run(main)
