"""Every algorithm of every collective: counted messages and words, and seconds.

mpirun -n 4 python experiments/collectives.py
mpirun -n 4 python experiments/collectives.py --collectives=broadcast,reduce --sizes=4MB
mpirun -n 4 python experiments/collectives.py --buffers=registered --sizes=4KB,32MB
python experiments/collectives.py --simulate=64 --sizes=4KB,1MB

Messages and words are those of all ranks: as counted in a call, and by the schedule.
Algorithms without messages, in shared memory or MPI's own, have no schedule; they are
timed on registered buffers, too. x native is the speed relative to MPI's own collective
on plain memory. A wrong result ends the command.

Cost: 12 s on 2 cores with 4 ranks.
Result: messages and words are those of the schedules.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from lab import flags, writing
import numpy as np
from studies.collectives.rows import COLUMNS, ITEMSIZE, conclude, rows

from dml.runs import folder, writers
from dml.types import BadInput, CountedComm
from dml.wire.collectives import COLLECTIVES
from dml.wire.collectives.shared import SLOTS
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.once import one_host
from dml.wire.plans.topology import STAGE

Row = dict[str, Any]

FLAGS = flags.define(*flags.VIRTUAL, "watchdog")
FLAGS.text("sizes", "4KB,1MB", "Sizes of the buffer in bytes, rounded to equal chunks.")
FLAGS.text(
    "collectives",
    "all",
    f"Collectives, of {', '.join(COLLECTIVES)}; or all.",
)
FLAGS.text(
    "buffers",
    "registered,plain",
    "Kinds of memory: registered in shared windows, or plain.",
)
FLAGS.integer("repeats", 7, "Number of timings, whose median is taken.", 1)


def main(argv: Sequence[str]) -> list[Row]:
    """Count and time the collectives; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    lengths = flags.element_counts(FLAGS.sizes, np.dtype(np.float32))
    names = flags.names(FLAGS.collectives, COLLECTIVES, "collectives")
    kinds = flags.names(FLAGS.buffers, ["registered", "plain"], "buffers")
    path = folder.path(FLAGS.out, "collectives")

    def program(comm: CountedComm) -> Row:
        if min(lengths) < comm.size:
            raise BadInput(
                f"expected an element of 4 bytes for each of {comm.size} ranks, got "
                f"--sizes={FLAGS.sizes}; pass larger sizes"
            )
        # five arrays, and the slots of `shared`
        nbytes = 5 * max(lengths) * ITEMSIZE + SLOTS * STAGE
        flags.check_memory(nbytes, comm.size)
        summary: Row = {"p": comm.size}
        console = writers.table(COLUMNS, FLAGS.wide)
        with writing.run_writer(
            path, FLAGS, comm, console, conclude=conclude
        ) as writer:
            for length, name, kind in product(lengths, names, kinds):
                if kind == "registered" and not one_host(comm):
                    continue
                equal = length - length % comm.size
                buffer = np.zeros(equal, np.float32)
                if kind == "registered":
                    buffer = allocate(comm, equal)
                for row in rows(comm, name, buffer, FLAGS.repeats):
                    writer.row(row)
                    key = f"{name}_{row['algorithm']}_{row['bytes']}"
                    summary[f"{key}_words"] = row["words"]
                release(comm, buffer)
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS, sleeping=False)


if __name__ == "__main__":
    flags.run(main)
