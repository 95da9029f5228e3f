"""BytePS and Parameter Hub on real ranks: measured and predicted times.

mpirun -n 4 python experiments/byteps.py --spares=1
mpirun -n 6 python experiments/byteps.py --spares=3 --nohub
python experiments/byteps.py --simulate=6 --spares=3

The last ranks are spare: they only add gradients (Jiang 2020). Shared memory has no
ports of limited bandwidth, so messages are throttled; the times without throttling are
also measured. The second table has the speed of a sum, the third the fused updates of
Parameter Hub (Luo 2018) on 2 ranks and on all.

Cost: 60 s of 4 ranks on 2 cores, half of it asleep.
Result: on ports of 20 MB/s the median is within 3.7 % of the paper's formula and 0.6 %
of virtual ranks, for 2 and 3 workers and 0 to 3 spare ranks. Spare ranks do not help 2
workers. A fused update of 4 MB by 2 ranks is 1.5 to 1.8 times as fast as separate
passes in shared memory, and 3 to 5 times as fast as passes and messages.
"""

from collections.abc import Iterator, Sequence

from lab import flags, writing
import numpy as np
from studies.byteps import hub
from studies.byteps import rows as exchanges
from studies.byteps.claims import CLAIMS

from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.types import CountedComm
from dml.wire.comm.sleeping import sleep_if_oversubscribed

TITLES = {
    "spares": "BytePS: all-reduces of workers and spare ranks",
    "sums": "Sum in place and copy, one core",
    "hub": "Parameter Hub: exchange, sum and Adam of all parameters",
}
FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.integer("spares", 1, "Number of spare ranks, the last ranks.", 0)
FLAGS.text("size", "16MB", "Size of the buffer of BytePS in bytes.")
FLAGS.text("segment", "256KB", "Largest size of a piece in bytes.")
FLAGS.number(
    "bandwidth", 20.0, "Bandwidth of a port in MB/s; 0: not throttled.", 0, 1e6
)
FLAGS.number("latency", 0.0, "Latency of a throttled message in seconds.", 0, 1)
FLAGS.integer("repeats", 5, "Number of timings, whose median is taken.", 1)
FLAGS.switch("hub", True, "Measurement of sums and of Parameter Hub.")
FLAGS.text("params", "256KB,1MB,4MB", "Sizes of the parameters in bytes.")
FLAGS.text("chunks", "4KB,32KB", "Sizes of a chunk of parameters in bytes.")


def main(argv: Sequence[str]) -> list[Row]:
    """Measure with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    (length,) = flags.element_counts(FLAGS.size.partition(",")[0], np.dtype("f4"))
    sizes = exchanges.Exchange(
        length, flags.nbytes(FLAGS.segment), FLAGS.repeats, FLAGS.seed
    )
    params = flags.element_counts(FLAGS.params, np.dtype("f4"))
    chunks = [flags.nbytes(chunk) for chunk in FLAGS.chunks.split(",")]
    path = folder.path(FLAGS.out, "byteps")

    def rows(comm: CountedComm) -> Iterator[Row]:
        bandwidth = 1e6 * FLAGS.bandwidth
        sleeping = comm if comm.platform.virtual else sleep_if_oversubscribed(comm)
        for name, linked, rates in exchanges.links(
            sleeping, bandwidth, FLAGS.latency, sizes
        ):
            yield from exchanges.spare_rows(linked, name, rates, FLAGS.spares, sizes)
        if not FLAGS.hub or comm.platform.virtual:
            return
        yield from exchanges.sum_rows(sleeping, params, 5 * FLAGS.repeats)
        for p in sorted({2, comm.size}):
            part = comm.Split(int(comm.rank >= p), comm.rank)
            if comm.rank < p:
                yield from hub.hub_rows(part, params, chunks, FLAGS.repeats)
            sleeping.Barrier()  # the other ranks sleep

    def program(comm: CountedComm) -> Row:
        flags.check_memory(6 * 4 * max([length, *params]), comm.size)
        exchanges.worlds(comm.size, FLAGS.spares)
        columns = {
            "spares": exchanges.COLUMNS,
            "sums": exchanges.SUMS,
            "hub": hub.COLUMNS,
        }
        console = writers.tables(columns, TITLES, FLAGS.wide)
        with writing.run_writer(
            path,
            FLAGS,
            comm,
            console,
            claims=CLAIMS,
            conclude=exchanges.conclude,
        ) as writer:
            for row in rows(comm):
                writer.row(row)
            summary = {"p": comm.size, "spares": FLAGS.spares}
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS, sleeping=False)


if __name__ == "__main__":
    flags.run(main)
