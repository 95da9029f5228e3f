"""Every strategy on every problem, and which results are bit-identical.

python experiments/matrix.py                             all cells, on virtual ranks
python experiments/matrix.py --problems=linear,completion --updates=10
python experiments/matrix.py --problems=./mine.py:make --methods=serial,./mine.py:train
mpirun -n 3 python experiments/matrix.py                 cells of three real ranks

A cell is a strategy on a problem; all cells of a row train on the same minibatches.
Equal letters in a row mean that the trained parameters are bit-identical. Words (buffer
elements) are sent by all ranks together. Seconds are virtual and contain messages only,
on the default network. The method `synchronous ./mine.py:sum` uses an own all-reduce.

Cost: 90 s on 2 cores, most of it compilation; 50 s with programs of an earlier run.
Result: methods that divide a minibatch among three workers and add in worker order are
bit-identical to `serial`; `cyclades` and `rotation` on three workers are bit-identical
to one worker. `coded` gradients are bit-identical to `serial` ones, also under attack.
"""

from collections.abc import Sequence
from typing import Any

from lab import compiling, flags, writing
from studies.matrix import report
from studies.matrix.cells import cells
from studies.matrix.methods import METHODS, find_method

from dml import extend
from dml.problems import PROBLEMS
from dml.runs import folder, writers
from dml.wire.comm.mpi import world

FLAGS = flags.define("watchdog")
FLAGS.text("problems", "all", "Problems, separated by commas; or all.")
FLAGS.text("methods", "all", "Methods, separated by commas; or all.")
FLAGS.integer("updates", 4, "Number of updates of each cell.", 1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train every cell; return the rows."""
    flags.parse(FLAGS, argv)
    compiling.enable_cache()
    problems = flags.names(FLAGS.problems, PROBLEMS, "problems", extend.PROBLEMS)
    given = FLAGS.methods.split(",")
    sums = [name for name in given if name.startswith("synchronous ")]
    table = [*METHODS, *filter(find_method, sums)]
    methods = flags.names(FLAGS.methods, table, "methods", extend.STRATEGIES)
    path = folder.path(FLAGS.out, "matrix")
    comm, rows = world(FLAGS.watchdog), []
    table_writer = writers.table(report.COLUMNS, FLAGS.wide, report.TITLE)
    with writing.run_writer(
        path, FLAGS, comm, table_writer, conclude=report.conclude
    ) as writer:
        for row in report.add_letters(cells(comm, problems, methods, FLAGS.updates)):
            rows.append(row)
            writer.row(row)
        summary = report.summary(rows)
        if comm.rank == 0:
            report.write(path / "matrix.md", rows)
        writer.summary(summary)
    return rows


if __name__ == "__main__":
    flags.run(main)
