"""All-reduce by hand, by MPI and by cost model, side by side.

mpirun -n 8 python experiments/allreduce.py
mpirun -n 2 python experiments/allreduce.py --sizes=4KB --buffers=plain --peers
mpirun -n 2 python experiments/allreduce.py --sizes=4MB --algorithms=ring --overlap=1
python experiments/allreduce.py --simulate=64 --sizes=4KB,1MB --group=8

Cost: a minute on 2 cores with 8 ranks. Result: on registered buffers `auto` takes as
long as MPI's own all-reduce at 4 KB and a half to a seventh of it from 256 KB on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from lab import estimates, flags, writing
from studies.networks import peers
from studies.networks.topology_claims import optimal

from dml.figures import races
from dml.runs import folder as runs
from dml.runs import writers
from dml.types import CountedComm
from dml.wire.collectives import ALLREDUCE, predicted
from dml.wire.collectives.background import hidden
from dml.wire.collectives.race import contest
from dml.wire.comm.buffers import allocate, release
from dml.wire.comm.once import once, one_host
from dml.wire.plans.schedules import SCHEDULES

Row = dict[str, Any]
Table = dict[str, Callable[..., None]]

FLAGS = flags.define(*("seed", *flags.VIRTUAL, "watchdog", "check", "group", "outside"))
FLAGS.text("sizes", "4KB,256KB,4MB,32MB", "Bytes of a buffer.")
FLAGS.text("algorithms", "all", f"Algorithms, of {', '.join(ALLREDUCE)}; or all.")
FLAGS.text("buffers", "registered,plain", "Kinds of memory.")
FLAGS.choice("dtype", "float32", flags.DTYPES, "Type of a word.")
FLAGS.integer("repeats", 7, "Number of timings, whose median is taken.", 1)
FLAGS.number(
    "overlap", 0, "Computation beside it, in multiples of its seconds; 0: none.", 0
)
FLAGS.switch("peers", False, "Race torch's gloo and jax's psum too.")


def main(argv: Sequence[str]) -> list[Row]:
    """Race as the flags say; return the summaries of the ranks of this process."""
    flags.parse(FLAGS, argv)
    dtype = np.dtype(FLAGS.dtype)
    lengths = flags.lengths(FLAGS.sizes, dtype)
    kinds = flags.names(FLAGS.buffers, ["registered", "plain"], "buffers")
    names = flags.names(FLAGS.algorithms, ALLREDUCE, "algorithms")
    path = runs.path(FLAGS.out, "allreduce")

    def program(comm: CountedComm) -> Row:
        summary: Row = {"p": comm.size}
        # Four buffers a rank: the raced one, its words, and the yardsticks' two.
        flags.holds(4 * max(lengths) * dtype.itemsize, comm.size)
        table = once(comm, "table", None, lambda: raced(comm, names))
        # On virtual ranks both kinds of memory give the same row, unless events differ.
        proofs: dict | None = None if FLAGS.events else {}
        with writing.first(
            path,
            FLAGS,
            comm,
            writers.table(races.COLUMNS),
            races.chart(path / "allreduce", among=[*SCHEDULES, "shared"]),
            claims=(optimal,),
        ) as writer:
            for kind in kinds:
                for length in lengths:
                    buffer = length, dtype, kind == "registered"
                    for row in rows(comm, table, *buffer, proofs):
                        writer.row(row)
                        summary |= totals(row)
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


def raced(comm: CountedComm, names: list[str]) -> Table:
    """Return the all-reduces by name; `shared` needs ranks of one host."""
    if FLAGS.algorithms == "all" and not one_host(comm):
        names = [name for name in names if name != "shared"]
    return {name: flags.allreduce(name, FLAGS, comm.size) for name in names}


def rows(
    comm: CountedComm,
    table: Table,
    length: int,
    dtype: np.dtype,
    registered: bool,
    proofs: dict | None,
) -> list[Row]:
    """Prove and race the algorithms on a buffer of one length and kind."""
    how = FLAGS.group, FLAGS.outside
    buffer = allocate(comm, length, dtype) if registered else np.zeros(length, dtype)
    if comm.platform.virtual and comm.rank == 0:
        for name in table:
            calls = estimates.allreduce(comm, name, buffer, *how)
            estimates.warn(comm, f"{name}, {buffer.nbytes:,} bytes", calls, name)
    others = peers.installed(comm, buffer) if FLAGS.peers else {}
    options = {"seed": FLAGS.seed, "peers": others, "proofs": proofs}
    found = contest(comm, table, buffer, FLAGS.repeats, **options)
    for row in found:
        name = row["algorithm"]
        row["registered"] = registered
        row["predicted_seconds"] = None  # the cost model knows nothing of peers
        if name in table:
            row["predicted_seconds"] = predicted(comm, name, buffer, *how)
        if name in table and FLAGS.overlap:
            seconds, share = row["seconds"], FLAGS.overlap
            row["hidden_share"] = hidden(comm, buffer, table[name], seconds, share)
    if registered:
        release(comm, buffer)
    return found


def totals(row: Row) -> Row:
    """What the summary says of a row: how `auto` does against MPI and memcpy."""
    if row["algorithm"] != "auto" or not row["seconds"]:
        return {}
    kind = "" if row["registered"] else "plain_"
    return {
        f"{kind}speedup_{row['bytes']}": row["speedup"],
        f"{kind}memcpy_share_{row['bytes']}": row["memcpy_seconds"] / row["seconds"],
    }


if __name__ == "__main__":
    flags.run(main)
