"""All-reduce algorithms: measured and predicted seconds, and the seconds of MPI.

mpirun -n 8 python experiments/allreduce.py
mpirun -n 8 python experiments/allreduce.py --algorithms=all    swing, bine, torus ...
mpirun -n 2 python experiments/allreduce.py --sizes=4KB --buffers=plain --peers
mpirun -n 2 python experiments/allreduce.py --sizes=4MB --algorithms=ring --overlap=1
python experiments/allreduce.py --join=runs/mpich-8,runs/openmpi-8
python experiments/allreduce.py --simulate=64 --sizes=4KB,1MB --group=8
python experiments/allreduce.py --watch=swing --simulate=8 --sizes=4MB
python experiments/allreduce.py --simulate=64 --network=torus:8x8 --sizes=1MB --explain

Cost: a minute on 2 cores with 8 ranks.
Result: on registered buffers `auto` takes as long as MPI's own all-reduce at 4 KB and
1/2 to 1/7 of the time from 256 KB on.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import flags, writing
import numpy as np
from studies.allreduce import film, joined
from studies.allreduce.explain import EXPLAINED
from studies.allreduce.rows import conclude, measure, select_algorithms, summary_entries
from studies.topology.claims import optimal

from dml import extend
from dml.figures import allreduce_times
from dml.runs import folder, writers
from dml.types import CountedComm
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.table import FUNCTIONS
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.once import once
from dml.wire.plans.schedules import SCHEDULES

Row = dict[str, Any]
CLASSIC = (*FUNCTIONS, "native", "auto")

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog", *flags.ALLREDUCES)
FLAGS.text("sizes", "4KB,256KB,4MB,32MB", "Sizes of the buffer in bytes.")
FLAGS.text(
    "algorithms",
    "classic",
    f"Algorithms: classic, which are {', '.join(CLASSIC)}; all; or of "
    f"{', '.join(ALLREDUCE)}, FILE.py:NAME, by commas.",
)
FLAGS.text(
    "buffers",
    "registered,plain",
    "Kinds of memory: registered in shared windows, or plain.",
)
FLAGS.choice("dtype", "float32", flags.DTYPES, "Type of a buffer element.")
FLAGS.integer("repeats", 7, "Number of timings, whose median is taken.", 1)
FLAGS.number(
    "overlap", 0, "Overlapping computation in multiples of the all-reduce's seconds.", 0
)
FLAGS.text("watch", "", "Algorithm to play in watch.html, as swing or broadcast:chain.")
FLAGS.switch(
    "explain",
    False,
    "Predicted ms, without and with links, the share of the optimum, and the choices "
    "of auto and auto_all.",
)
FLAGS.text(
    "join",
    "",
    "Folders of runs to show in one table, of collectives.py, too, by commas: "
    "LIBRARY-RANKS, such as mpich-2.",
)
FLAGS.switch("peers", False, "Comparison with torch's gloo and jax's psum.")


def main(argv: Sequence[str]) -> list[Row]:
    """Time the algorithms; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    dtype = np.dtype(FLAGS.dtype)
    lengths = flags.element_counts(FLAGS.sizes, dtype)
    kinds = flags.names(FLAGS.buffers, ["registered", "plain"], "buffers")
    classic = FLAGS.algorithms == "classic"
    text = ",".join(CLASSIC) if classic else FLAGS.algorithms
    names = flags.names(text, ALLREDUCE, "algorithms", extend.ALLREDUCES)
    path = folder.path(FLAGS.out, "allreduce")
    if FLAGS.join:
        return [join(path)]
    if FLAGS.watch:
        return [watch(path, max(lengths) * dtype.itemsize)]

    def program(comm: CountedComm) -> Row:
        summary: Row = {"p": comm.size}
        # Four buffers per rank: the result, its initial elements, and two baselines.
        flags.check_memory(4 * max(lengths) * dtype.itemsize, comm.size)
        table = once(comm, "table", None, lambda: select_algorithms(comm, names, FLAGS))
        # On virtual ranks both kinds of memory give equal rows, unless events differ.
        checked: dict | None = None if FLAGS.events else {}
        columns = EXPLAINED if FLAGS.explain else allreduce_times.COLUMNS
        console = writers.table(columns, FLAGS.wide)
        chart = allreduce_times.chart(
            path / "allreduce", compared=[*SCHEDULES, "shared"]
        )
        with writing.run_writer(
            path, FLAGS, comm, console, chart, claims=(optimal,), conclude=conclude
        ) as writer:
            for buffer in buffers(comm):
                for row in measure(comm, table, buffer, FLAGS, checked):
                    writer.row(row)
                    summary |= summary_entries(row)
            writer.summary(summary)
        return summary

    def buffers(comm: CountedComm) -> Iterator[np.ndarray]:
        for kind in kinds:
            for length in lengths:
                if kind == "plain":
                    yield np.zeros(length, dtype)
                else:
                    buffer = allocate(comm, length, dtype)
                    yield buffer
                    release(comm, buffer)

    return flags.ranks(program, FLAGS, sleeping=False)


def join(path: Path) -> Row:
    """Write the table of runs under several MPI libraries; return the summary."""
    libraries = joined.read(FLAGS.join)
    console = writers.table(joined.columns(list(libraries)), FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, console, conclude=joined.conclude
    ) as writer:
        found = list(joined.rows(libraries))
        for row in found:
            writer.row(row)
        summary = {"rows": len(found), "libraries": list(libraries)}
        writer.summary(summary)
    return summary


def watch(path: Path, nbytes: int) -> Row:
    """Write watch.html, which plays one algorithm; return the summary."""
    ranks = FLAGS.simulate or 8
    film.parse(FLAGS.watch, ranks)
    with writing.run_writer(path, FLAGS, None) as writer:
        page = path / "watch.html"
        messages = film.write(page, FLAGS.watch, ranks, FLAGS.network, nbytes)
        summary = {"watch": FLAGS.watch, "ranks": ranks, "messages": messages}
        print(f"{messages} messages of {FLAGS.watch} on {ranks} virtual ranks: {page}")
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
