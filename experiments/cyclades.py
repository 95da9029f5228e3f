"""No conflicts, so the bits of one worker: what does that cost, and save? (Pan 2016)

python experiments/cyclades.py                       threads of one process, 2 workers
python experiments/cyclades.py --problems=svm --batches=64,256 --hubs=1,0.01,0.001
mpirun -n 2 python experiments/cyclades.py --bits=1,2,4

The bits of some workers beside serial's, by batch, also with hubs apart, which wait for
a batch's end; how conflicts connect the examples of a batch; updates a second beside
HOGWILD!'s, by turns; and the largest step with which the objective falls, also where
HOGWILD! is simulated whose reads are late, as they are with many workers.

Cost: 25 s on 2 cores.
Result: the bits of serial on 1, 2, 4 and 8 workers, by all batches, hubs apart or not.
Of 64 newsgroups one component has all, without hubs 71 %; of 64 ratings 5 %. Steps are
as large as serial's, 0.7 of it where hubs wait; 4.8 and 1.7 times those of reads that
are 256 updates late.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import flags
import writing
from cyclades_parts import bits, races, sizes
from cyclades_report import KINDS, drawn, summarised
from cyclades_steps import largest
from hogwild_claims import CYCLADES
from hogwild_problems import PROBLEMS
from sparse_runs import Task, loaded

from dml.metrics import runs, writers
from dml.metrics.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.messages import Metered
from dml.wire.messages.comm import world

FLAGS = flags.define("seed", "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
text("problems", "svm,completion,sparse", f"Of {', '.join(PROBLEMS)}.")
text("bits", "1,2,4,8", "Workers whose bits are compared: 1, or some of each rank.")
text("checked", "64,1024", "Batches whose bits are compared.")
text("batches", "16,64,256,1024,4096", "Batches whose conflicts are counted.")
text("hubs", "1,0.005", "Rows in more than such a share of the examples are apart.")
text("workers", "1,2", "Workers that race.")
text("late", "16,256", "Updates that reads of a simulated HOGWILD! are late; or none.")
integer("epochs", 10, "Of a turn.")
integer("repeats", 5, "Turns, of which the median.")
integer("tried", 3, "Epochs after which a step is judged; 3 to 10 rates are tried.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Measure as the flags say; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    problems = flags.names(FLAGS.problems, PROBLEMS, "problems")
    counts = {
        name: sorted({*flags.integers(FLAGS, name)})
        for name in ("bits", "checked", "batches", "workers")
    }
    hubs = flags.numbers(FLAGS, "hubs", 1)
    late = flags.integers(FLAGS, "late", empty=True)
    path = runs.path(FLAGS.out, "cyclades")

    def program(comm: CountedComm) -> dict[str, Any]:
        known: list[tuple[str, Task, Problem]] = []
        for name in problems:
            task = PROBLEMS[name](FLAGS.seed)
            known.append((name, task, loaded(comm, task)[0]))

        def every() -> Iterator[Row]:
            most, turns = counts["workers"][-1], (FLAGS.repeats, FLAGS.epochs)
            for part in (
                partial(bits, hubs, (counts["checked"], counts["bits"])),
                partial(sizes, hubs, counts["batches"]),
                partial(races, counts["workers"], turns),
                partial(largest, most, (late, FLAGS.tried)),
            ):
                for name, task, problem in known:
                    for row in part(comm, problem, task.stated, FLAGS.seed):
                        yield {"problem": name} | row

        rows: list[Row] = []
        shown = writers.tables(KINDS, {}, key="kind")
        with writing.first(path, FLAGS, comm, shown, claims=CYCLADES) as writer:
            for row in every():
                writer.row(row)
                rows.append(row)
            if comm.rank:
                return {}
            summary = summarised(rows)
            drawn(path, rows)
            writer.summary(summary)
        return summary

    return [program(Metered(world(FLAGS.watchdog)))]


if __name__ == "__main__":
    flags.run(main)
