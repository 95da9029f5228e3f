"""Pushes and bytes per second of parameter servers, compared with plain messages.

mpirun -n 2 python experiments/server_bandwidth.py                 1 worker, 1 server
mpirun -n 4 python experiments/server_bandwidth.py --servers=1,2
python experiments/server_bandwidth.py --simulate=8                cost formula only

`raw` sends the same bytes back and forth by mpi4py's Send and Recv without a server;
`both` sends them by Sendrecv in both directions at once. The methods are timed
alternately, so that drift affects all equally; the values are medians.

Cost: 10 s on 2 cores.
Result: on 2 cores of an EPYC (Zen 5), a push of 4 MB has 0.53 to 0.84 of the speed of
raw, a push and pull of 4 MB 0.45 to 1.05, 4096 rows of width 50 have 0.46 to 1.03, and
a push of 1 KB has 0.14, due to Python's time per message. Raw sends unchanged data.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from lab import flags, writing
import numpy as np
from studies.server import server_bandwidth_programs as programs
from studies.server.server_bandwidth_programs import COLUMNS, Load

from dml.runs import folder, writers
from dml.strategies.server.roles import roles
from dml.types import CountedComm
from dml.wire.collectives import machine_rates
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.costs import server as server_cost
from dml.wire.costs.allreduce import Rates

Row = dict[str, Any]

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.text(
    "sizes", "1KB,64KB,1MB,4MB", "Bytes of a dense push and of a pull; empty: none."
)
FLAGS.text(
    "servers", "0", "Comma-separated numbers of servers; 0 uses one rank in four."
)
FLAGS.integer("rows", 4096, "Number of rows of a sparse push.", 1)
FLAGS.integer("width", 50, "Number of elements of a row.", 1)
FLAGS.integer("table", 60_000, "Number of rows of the table.", 1)
FLAGS.integer("repeats", 7, "Number of timings, whose median is taken.", 1)


def main(argv: Sequence[str]) -> list[Row]:
    """Measure with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    lengths = (
        flags.element_counts(FLAGS.sizes, np.dtype(np.float32)) if FLAGS.sizes else []
    )
    server_counts = [
        flags.positive(text, "servers") if text != "0" else 0
        for text in FLAGS.servers.split(",")
    ]
    path = folder.path(FLAGS.out, "server_bandwidth")

    def program(comm: CountedComm) -> Row:
        summary: Row = {"p": comm.size}
        for servers in server_counts:
            roles(comm.size, servers)  # raises before anything is written
        table = writers.table(COLUMNS, FLAGS.wide)
        with writing.run_writer(
            path, FLAGS, comm, table, conclude=programs.conclude
        ) as writer:
            for load in loads(lengths, server_counts, comm.size):
                row = measure(comm, load)
                writer.row(row)
                key = f"{row['load']}_{row['bytes']}_{row['servers']}"
                summary[key] = row["of_raw"]
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS, sleeping=False)


def loads(lengths: list[int], server_counts: list[int], size: int) -> Iterator[Load]:
    """Yield dense pushes of these lengths, without and with pulls, and sparse rows."""
    for servers in server_counts:
        ranks = roles(size, servers)
        for name in ("push", "push and pull"):
            for length in lengths:
                yield Load(name, ranks, length, 1, None)
        draws = np.random.default_rng(FLAGS.seed).permutation(FLAGS.table)
        keys = draws[: FLAGS.rows].astype(np.int32)
        yield Load("rows", ranks, FLAGS.table, FLAGS.width, keys)


def measure(comm: CountedComm, load: Load) -> Row:
    """Time a load and plain messages of the same size; return the row."""
    methods = programs.methods(comm, load)
    times = np.median(time_alternately(comm, methods, FLAGS.repeats), axis=1)
    seconds, raw, both = times.tolist()
    workers, servers = load.roles.workers, len(load.roles.servers)
    nbytes = load.nbytes * (2 if load.pulls else 1)
    # Servers cache the keys of the first push, so that the clock sends no keys.
    clock = server_cost.Clock(load.nbytes, workers, servers)
    network = comm.platform.network
    rates = network.rates if network else machine_rates(comm)
    gamma = 0.0 if network else rates.gamma  # virtual ranks add without cost
    rates = Rates(rates.alpha, rates.beta, gamma)
    return {
        "load": load.name,
        "bytes": load.nbytes,
        "servers": servers,
        "workers": workers,
        "seconds": seconds,
        "raw_seconds": raw,
        "both_seconds": both,
        "pushes_per_second": workers / seconds,
        "gigabytes_per_second": workers * nbytes / seconds / 1e9,
        "of_raw": raw / seconds,
        "of_both": both / seconds,
        "predicted_seconds": server_cost.seconds(clock, rates, load.pulls),
    }


if __name__ == "__main__":
    flags.run(main)
