"""Speed-ups of locking policies by workers and by the time of a gradient (Niu 2011).

python experiments/hogwild.py                        threads of one process, 2 workers
python experiments/hogwild.py --workers=1,2,4,8 --updates=all --problems=svm
mpirun -n 4 python experiments/hogwild.py --workers=1,4,8      1 and 2 threads per rank
python experiments/hogwild.py --watch=lock-free --workers=6    a page that plays it

The policies run alternately, --epochs epochs in each timing. A speed-up is the median
over the timings of the ratio to serial; the objective is that of the first timing. Lost
updates are counted in a separate run. A second measurement adds --delays to each
gradient.

Cost: 45 s on two cores.
Result: lock-free ≥ locked ≥ round robin on all five problems. Two workers are 1.6 to
2.0 times as fast as one on brain and not faster on newsgroups, whose gradients of 0.2
µs wait for cache lines. With gradients of 2 µs they are 1.9 times as fast, and round
robin is equal to lock-free.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lab import flags, writing
from lab.progress import PROGRESS
from studies.shared_memory import film, hogwild_report
from studies.shared_memory.hogwild_claims import HOGWILD
from studies.shared_memory.hogwild_measurements import compare_speed, sweep
from studies.shared_memory.hogwild_runs import PROBLEMS, settings, study
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_runs import load_problem

from dml.runs import folder
from dml.runs.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world

POLICIES = ["hogwild", "hogwild_private", "atomic", "locked", "global", "roundrobin"]

FLAGS = flags.define("seed", "watchdog")
FLAGS.text("problems", "all", f"Problems, of {', '.join(PROBLEMS)}; or all.")
FLAGS.text(
    "updates",
    "hogwild,locked,roundrobin",
    f"Locking policies, of {', '.join(POLICIES)}.",
)
FLAGS.text(
    "workers", "1,2", "Numbers of workers in total: 1 or multiples of the ranks."
)
FLAGS.integer("epochs", 10, "Number of epochs of a timing.", 1)
FLAGS.integer("repeats", 5, "Number of timings, whose median is taken.", 1)
FLAGS.text(
    "delays", "0,1,10,100,1000", "Microseconds added to a gradient; empty: none."
)
FLAGS.choice("delayed", "svm", list(PROBLEMS), "Problem of --delays.")
FLAGS.choice("watch", None, [*film.POLICIES], "Policy that watch.html plays.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Time the policies with the parsed flags; return this rank's summary."""
    flags.parse(FLAGS, argv)
    problems = flags.names(FLAGS.problems, PROBLEMS, "problems")
    policies = flags.names(FLAGS.updates, POLICIES, "updates")
    workers = sorted({*flags.integers(FLAGS, "workers")})
    delays = sorted({*flags.numbers(FLAGS, "delays")}) if FLAGS.delays else []
    path = folder.path(FLAGS.out, "hogwild")
    if FLAGS.watch:
        return [watch(path, workers[-1])]
    cases = [(policy, count) for count in workers for policy in policies]
    repeats, epochs = FLAGS.repeats, FLAGS.epochs

    def rows(comm: CountedComm) -> Iterator[Row]:
        @cache
        def load(name: str) -> tuple[Defaults, Problem]:
            task = PROBLEMS[name](FLAGS.seed)
            return task.defaults, load_problem(comm, task)[0]

        for name in PROGRESS.each(problems):
            defaults, problem = load(name)
            options = settings(defaults, epochs, FLAGS.seed)
            for row in compare_speed(comm, problem, options, cases, repeats, epochs):
                yield {"problem": name} | row
        if delays:
            defaults, problem = load(FLAGS.delayed)
            options, widest = settings(defaults, 1, FLAGS.seed), cases[-len(policies) :]
            for row in sweep(comm, problem, options, widest, delays, repeats):
                yield {"problem": FLAGS.delayed} | row

    comm = Metered(world(FLAGS.watchdog))
    return [study(comm, FLAGS, path, hogwild_report, rows(comm), HOGWILD)]


def watch(path: Path, workers: int) -> dict[str, Any]:
    """Write watch.html, which plays a policy on virtual workers; return the summary."""
    with writing.run_writer(path, FLAGS, None) as writer:
        counts = film.write(path / "watch.html", FLAGS.watch, workers)
        summary = {"watch": FLAGS.watch, "workers": workers, **counts}
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
