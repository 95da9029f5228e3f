"""Cost of stragglers: seconds per step of four strategies by delay and workers.

python experiments/stragglers.py                              virtual and real ranks
python experiments/stragglers.py "--law=pareto:2,3*1,1,0.5" --workers=100
mpirun -n 9 python experiments/stragglers.py --workers=       8 real workers, a server

A worker computes a gradient in X seconds, drawn for every step and worker; a step uses
`grads` gradients. Times are computed by max-plus recurrences; `virtual error` is the
largest difference of running virtual ranks, as a share of the total time. Virtual and
real ranks run fewer steps; real ranks sleep --scale X seconds.

Cost: 14 s on 2 cores, with 10,001 running ranks.
Result: the slowest of n workers takes c + (ln n + 0.58)/mu: 20.6 s for n = 10,000,
where the mean is 3 s and three of four take at most 3.8 s. With a Pareto tail of the
same mean the slowest takes 58 s.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags, writing
from studies.stragglers.barriers import Barrier, barriers
from studies.stragglers.claims import CLAIMS
from studies.stragglers.ranks import (
    Starts,
    finish_measurement,
    real_starts,
    start_measurement,
)
from studies.stragglers.report import COLUMNS, barrier_rows, chart, conclude, totals

from dml.runs import folder, writers
from dml.runs.writers import Writer
from dml.sim.delays import delay_distribution, seconds
from dml.types import Comm
from dml.wire.comm import first_of_all
from dml.wire.comm.mpi import world

Row = dict[str, Any]

FLAGS = flags.define("seed", "watchdog")
LAWS = "shifted_exponential:1,0.5;pareto:2,3"
FLAGS.text("law", LAWS, "Delay distributions of X, separated by semicolons.")
FLAGS.text("workers", "10,100,1000,10000", "Numbers of virtual workers; may be none.")
FLAGS.integer("steps", 1000, "Steps of max-plus; at most 3 million draws.", 10)
FLAGS.integer("staleness", 1, "Staleness bound of SSP in clocks.", 0)
FLAGS.number("k", 0.75, "Share of the workers that k-of-p waits for.", 0, 1)
FLAGS.integer("measure", 8, "Number of real workers to start; 0: none.", 0)
FLAGS.number("scale", 0.004, "Seconds that a real worker sleeps per unit of X.", 1e-4)

MAX_DRAWS = 3_000_000  # draws of max-plus
VIRTUAL_STEPS = 10_000  # steps of all virtual workers together
REAL_STEPS = 25  # steps of each real worker


def main(argv: Sequence[str]) -> list[Row]:
    """Tabulate with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    workers = flags.integers(FLAGS, "workers", empty=True)
    distributions = {text: delay_distribution(text) for text in FLAGS.law.split(";")}
    # bytes per running virtual rank
    flags.check_memory(20_000, max(workers, default=1))
    path = folder.path(FLAGS.out, "stragglers")

    def program(comm: Comm) -> Row:
        real: dict[str, Starts] = {}
        p = comm.size - 1
        for text, distribution in distributions.items() if p else ():
            draws_TxP = seconds(distribution, FLAGS.seed, REAL_STEPS, p)
            real[text] = real_starts(comm, table(p), draws_TxP, FLAGS.scale)
        shown = (writers.table(COLUMNS, FLAGS.wide), chart(path / "stragglers", table))
        with writing.run_writer(
            path, FLAGS, comm, *shown, claims=CLAIMS, conclude=conclude
        ) as writer:
            return first_of_all(
                comm, lambda: {} if comm.rank else tabulate(writer, real, p)
            )

    def tabulate(writer: Writer, real: dict[str, Starts], p: int) -> Row:
        start, summary = time.perf_counter(), {}
        for row in all_rows(real, p):
            writer.row(row)
            summary |= totals(row)
        summary["seconds"] = time.perf_counter() - start
        writer.summary(summary)
        return summary

    def all_rows(real: dict[str, Starts], p: int) -> Iterator[Row]:
        child_path = path / "measured"
        child = None if real else start_measurement(flags.chosen(FLAGS), child_path)
        for text in distributions:
            for n in workers:
                yield from rows(text, n, virtual_steps(n))
        yield from finish_measurement(child, child_path)
        for text, starts in real.items():
            yield from rows(text, p, REAL_STEPS, starts)

    return [program(world(FLAGS.watchdog))]


def table(p: int) -> dict[str, Barrier]:
    """Return the barriers of p workers by name."""
    return barriers(p, max(1, round(FLAGS.k * p)), FLAGS.staleness)


def virtual_steps(p: int) -> int:
    """Return the number of steps that p virtual workers run."""
    return max(FLAGS.staleness + 2, min(100, VIRTUAL_STEPS // p))


def rows(text: str, p: int, steps: int, real: Starts | None = None) -> Iterator[Row]:
    """Draw delays of p workers; compute, run and compare the four strategies."""
    many = max(10, steps, min(FLAGS.steps, MAX_DRAWS // p))
    delay = delay_distribution(text)
    draws_TxP = seconds(delay, FLAGS.seed, many, p)
    for row in barrier_rows(delay, table(p), draws_TxP, steps, real):
        yield {"law": text} | row


if __name__ == "__main__":
    flags.run(main)
