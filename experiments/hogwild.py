"""What locks and turns cost: speed-up by worker, and by a gradient's time (Niu 2011).

python experiments/hogwild.py                        threads of one process, 2 workers
python experiments/hogwild.py --workers=1,2,4,8 --updates=all --problems=svm
mpirun -n 4 python experiments/hogwild.py --workers=1,4,8      1 and 2 threads a rank

All ways run by turns, some epochs each; a speed-up is the median of turns to those of
serial beside them, an objective the first turn's. Lost updates are counted in a run of
its own. Then gradients are made to take longer: where does round robin catch up?

Cost: 45 s on two cores.
Result: lock-free ≥ locked ≥ round robin on all five problems, brain 1.6 to 2.0 times as
fast by two workers, newsgroups not at all: gradients of 0.2 µs wait for cache lines. Of
2 µs they are 1.9 times as fast, and round robin is level.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import flags
import writing
from hogwild_claims import HOGWILD
from hogwild_delays import sweep
from hogwild_problems import PROBLEMS
from hogwild_report import KINDS, drawn, row, summarised
from hogwild_runs import SERIAL, Case, by_turns, settings
from sparse_runs import Task, loaded

from dml.metrics import runs, writers
from dml.metrics.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.memory.structure import structure
from dml.wire.messages import Metered
from dml.wire.messages.comm import world

WAYS = ["hogwild", "atomic", "locked", "global", "roundrobin"]

FLAGS = flags.define("seed", "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
text("problems", "all", f"Of {', '.join(PROBLEMS)}.")
text("updates", "hogwild,locked,roundrobin", f"Of {', '.join(WAYS)}.")
text("workers", "1,2", "Of all ranks together: 1, or some threads of each rank.")
integer("epochs", 10, "Of a turn.")
integer("repeats", 5, "Turns, of which the median.")
text("delays", "0,1,10,100,1000", "Microseconds that a gradient takes longer; or none.")
flags.choice("delayed", "svm", list(PROBLEMS), "Whose do.", flag_values=FLAGS)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Race as the flags say; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    problems = flags.names(FLAGS.problems, PROBLEMS, "problems")
    ways = flags.names(FLAGS.updates, WAYS, "updates")
    workers = sorted({*flags.integers(FLAGS, "workers")})
    delays = sorted({*flags.numbers(FLAGS, "delays")}) if FLAGS.delays else []
    path = runs.path(FLAGS.out, "hogwild")

    def program(comm: CountedComm) -> dict[str, Any]:
        @cache
        def load(name: str) -> tuple[Task, Problem]:
            task = PROBLEMS[name](FLAGS.seed)
            return task, loaded(comm, task)[0]

        def every() -> Iterator[Row]:
            cases = [(way, p) for p in workers for way in ways]
            for name in problems:
                for found in race(comm, load(name), cases):
                    yield {"problem": name} | found
            if delays:
                task, problem = load(FLAGS.delayed)
                most, turns = cases[-len(ways) :], (delays, FLAGS.repeats)
                batch = settings(task.stated, 1, FLAGS.seed)
                for found in sweep(comm, problem, batch, most, *turns):
                    yield {"problem": FLAGS.delayed} | found

        rows: list[Row] = []
        shown = writers.tables(KINDS, {}, key="kind")
        with writing.first(path, FLAGS, comm, shown, claims=HOGWILD) as writer:
            for found in every():
                writer.row(found)
                rows.append(found)
            if comm.rank:
                return {}
            summary = summarised(rows)
            drawn(path, rows)
            writer.summary(summary)
        return summary

    return [program(Metered(world(FLAGS.watchdog)))]


def race(
    comm: CountedComm, loaded: tuple[Task, Problem], cases: Sequence[Case]
) -> Iterator[Row]:
    """Time all cases by turns, and count what is lost; rank 0 yields a row each."""
    task, problem = loaded
    epochs = FLAGS.epochs
    how = settings(task.stated, epochs, FLAGS.seed)
    timed = by_turns(comm, problem, how, [SERIAL, *cases], (FLAGS.repeats, epochs))
    counting = how._replace(counting=True)
    counted = by_turns(comm, problem, counting, cases, (1, epochs))
    if comm.rank == 0:
        facts = structure(problem.kernel.data.edges, len(problem.params))
        updates = epochs * facts.edges
        for case in [SERIAL, *cases]:
            yield row(problem, case, (timed, counted), updates) | {
                "omega": facts.omega,
                "delta": facts.delta,
                "rho": facts.rho,
            }


if __name__ == "__main__":
    flags.run(main)
