"""CYCLADES (Pan 2016): equality, cost and largest step size by the number of workers.

python experiments/cyclades.py                       threads of one process, 2 workers
python experiments/cyclades.py --problems=svm --batches=64,256 --hubs=1,0.01,0.001
mpirun -n 2 python experiments/cyclades.py --bits=1,2,4

Four studies: the trained bits on several numbers of workers, compared with serial, by
batch size, with and without hubs (frequent rows, updated at the end of a batch); the
connected components of a batch's conflict graph; updates per second, alternating with
HOGWILD!; and the largest learning rate at which the objective falls, also for HOGWILD!
simulated with the late reads of many workers.

Cost: 25 s on 2 cores.
Result: 1, 2, 4 and 8 workers give results bit-identical to serial for all batch sizes,
with and without hubs. The largest component contains all of 64 newsgroups (71 % without
hubs) and 5 % of 64 ratings. The largest rate is the serial rate, or 0.7 of it with
hubs; it is 4.8 and 1.7 times the rate with reads that are 256 updates late.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lab import flags
from studies.shared_memory import cyclades_report
from studies.shared_memory.cyclades_measurements import (
    bits,
    compare_speed,
    largest,
    sizes,
)
from studies.shared_memory.hogwild_claims import CYCLADES
from studies.shared_memory.hogwild_runs import PROBLEMS, study
from studies.shared_memory.sparse_runs import load_problem

from dml.runs import folder
from dml.runs.writers import Row
from dml.types import CountedComm
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world

FLAGS = flags.define("seed", "watchdog")
FLAGS.text("problems", "svm,completion,sparse", f"Problems, of {', '.join(PROBLEMS)}.")
FLAGS.text(
    "bits",
    "1,2,4,8",
    "Numbers of workers whose bits are compared: 1 or multiples of the ranks.",
)
FLAGS.text("checked", "64,1024", "Batch sizes whose bits are compared.")
FLAGS.text("batches", "16,64,256,1024,4096", "Batch sizes whose conflicts are counted.")
FLAGS.text("hubs", "1,0.005", "Shares of the examples above which a row is a hub.")
FLAGS.text("workers", "1,2", "Numbers of workers whose updates are timed.")
FLAGS.text("late", "16,256", "Delays of simulated reads in updates; empty: none.")
FLAGS.integer("epochs", 10, "Number of epochs of a timing.", 1)
FLAGS.integer("repeats", 5, "Number of timings, whose median is taken.", 1)
FLAGS.integer(
    "tried", 3, "Number of epochs of each tried rate; 3 to 10 rates are tried.", 1
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Measure with the parsed flags; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    problems = flags.names(FLAGS.problems, PROBLEMS, "problems")
    workers, checked, batches, compared = (
        sorted({*flags.integers(FLAGS, name)})
        for name in ("bits", "checked", "batches", "workers")
    )
    hubs = flags.numbers(FLAGS, "hubs", 1)
    late = flags.integers(FLAGS, "late", empty=True)
    path = folder.path(FLAGS.out, "cyclades")
    parts = (
        partial(bits, shares=hubs, batches=checked, workers=workers),
        partial(sizes, shares=hubs, batches=batches),
        partial(
            compare_speed, workers=compared, repeats=FLAGS.repeats, epochs=FLAGS.epochs
        ),
        partial(largest, most=compared[-1], late=late, epochs=FLAGS.tried),
    )

    def rows(comm: CountedComm) -> Iterator[Row]:
        tasks = {name: PROBLEMS[name](FLAGS.seed) for name in problems}
        known = {name: load_problem(comm, task)[0] for name, task in tasks.items()}
        for part in parts:
            for name, task in tasks.items():
                for row in part(comm, known[name], task.defaults, FLAGS.seed):
                    yield {"problem": name} | row

    comm = Metered(world(FLAGS.watchdog))
    return [study(comm, FLAGS, path, cyclades_report, rows(comm), CYCLADES)]


if __name__ == "__main__":
    flags.run(main)
