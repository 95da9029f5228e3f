"""What the slowest costs: seconds a step of four ways of waiting, by law and workers.

python experiments/stragglers.py                              virtual and real ranks
python experiments/stragglers.py --law=pareto:2,3*1,1,0.5 --workers=100 --measure=0
mpirun -n 9 python experiments/stragglers.py --workers=       8 real workers, a server

A worker takes X seconds, drawn anew for every step and worker; `grads` of them make a
step. `off` is by how much running virtual ranks miss max-plus on equal draws, at most.
Real workers sleep; their draws are those of the virtual ones in the same row.

Cost: 16 s, up to 10,001 running ranks.
Result: the slowest of n takes 1 + 2(ln n + 0.58) seconds.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import flags
import numpy as np
from stragglers_ranks import Starts, elsewhere, measured, virtual
from stragglers_report import COLUMNS, chart, totals
from stragglers_ways import Way, ways

from dml.metrics import runs, writers
from dml.sim.laws import Law, law, seconds
from dml.sim.maxplus import pace
from dml.types import Comm
from dml.wire.messages import first_of_all
from dml.wire.messages.comm import world

Row = dict[str, Any]

FLAGS = flags.define("out", "seed", "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, flag_values=FLAGS)
number = partial(flags.number, flag_values=FLAGS)
text("law", "shifted_exponential:1,0.5;pareto:2,3", "Laws of X.")
text("workers", "10,100,1000,10000", "Virtual workers; may be none.")
integer("steps", 1000, "Of max-plus, at most: 3 million draws.", 10)
integer("staleness", 1, "Clocks that a bounded worker may be ahead.", 0)
number("k", 0.75, "Share of the workers that k of p waits for.", 0, 1)
integer("measure", 8, "Real workers that one process starts; 0: none.", 0)
number("scale", 0.004, "Seconds that real workers sleep for each of X.", 1e-4)

DRAWS = 3_000_000  # of max-plus
RUNS = 10_000  # steps of virtual workers, all together
ASLEEP = 25  # steps of real workers


def main(argv: Sequence[str]) -> list[Row]:
    """Tabulate as the flags say; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    workers = [flags.positive(p, "workers") for p in FLAGS.workers.split(",") if p]
    laws = {text: law(text) for text in FLAGS.law.split(";")}
    path = runs.path(FLAGS.out, "stragglers")

    def program(comm: Comm) -> Row:
        real: dict[str, Starts] = {}
        p = comm.size - 1
        for text, one in laws.items() if p else ():
            draws_TxP = seconds(one, FLAGS.seed, ASLEEP, p)
            real[text] = measured(comm, table(p), draws_TxP, FLAGS.scale)
        return first_of_all(comm, lambda: {} if comm.rank else tabulate(p, real))

    def tabulate(p: int, real: dict[str, Starts]) -> Row:
        begun, summary = time.perf_counter(), {}
        with writers.many(
            writers.table(COLUMNS),
            runs.folder(path, flags.chosen(FLAGS)),
            chart(path / "stragglers"),
        ) as writer:
            asleep = []
            if FLAGS.measure and not real:
                asleep = elsewhere(flags.chosen(FLAGS), path / "measured")
            for text, one in laws.items():
                found = [row for row in asleep if row["law"] == text]
                if not found and (some := p or FLAGS.measure):
                    found = rows(text, one, some, ASLEEP, real.get(text, {}))
                more = (rows(text, one, n, ran(n), {}) for n in workers)
                for row in chain(found, *more):
                    writer.row(row)
                    summary |= totals(row)
            writer.summary(summary | {"seconds": time.perf_counter() - begun})
        return summary

    return [program(world(FLAGS.watchdog))]


def table(p: int) -> dict[str, Way]:
    return ways(p, max(1, round(FLAGS.k * p)), FLAGS.staleness)


def ran(p: int) -> int:
    """Return how many steps p virtual workers run: fewer the more they are."""
    return max(FLAGS.staleness + 2, min(100, RUNS // p))


def rows(text: str, one: Law, p: int, steps: int, real: Starts) -> Iterator[Row]:
    """Compute, run and compare the four ways for p workers."""
    many = max(10, min(FLAGS.steps, DRAWS // p))
    draws_TxP = seconds(one, FLAGS.seed, max(many, steps), p)
    few_TxP = draws_TxP[:steps]
    found = virtual(table(p), few_TxP)
    for name, way in table(p).items():
        wanted_TxP = way.oracle(few_TxP)
        off_TxP = np.abs(found[name] - wanted_TxP) / wanted_TxP.max()
        maxplus = pace(way.oracle(draws_TxP), skip=many // 5)
        yield {
            "law": text,
            "workers": p,
            "way": name,
            "grads": way.gradients,
            "formula": way.closed(one),
            "maxplus": maxplus,
            "virtual": pace(found[name]),
            "off": float(off_TxP.max()),
            "measured": pace(real[name]) if real else None,
            "grads_per_second": way.gradients / maxplus,
        }


if __name__ == "__main__":
    flags.run(main)
