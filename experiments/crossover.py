"""Bandwidths below which compressed gradients save time, by code and number of ranks.

python experiments/crossover.py
python experiments/crossover.py --codes=sign+feedback,natural --latency_us=2
python experiments/crossover.py --ranks=8 --gbps=10,25,100 --examples=64

The codes are measured on one core, for a gradient of --matrices matrices of 512 x 512.
The seconds of messages are predicted for virtual networks, on which they are exact:
those of the fastest all-reduce for exact sums, of the fastest transport for codes.
`alone` is the bandwidth below which a coded sum takes less time than an exact one.
The other columns are for updates: exact sums are sent during the backward pass, codes
are computed after it. The gradient of n parameters and b examples takes 6nb operations,
at the measured speed of a matrix product. With the default examples it takes about
0.25, 1 and 4 ms for a MB of parameters.

A setup is a code, a number of ranks, a bandwidth of --gbps and a number of --examples.
The conclusion is the share of the setups in which a code makes updates faster.

Cost: 10 s on one core.
Result: exact sums alone are slower than codes up to 12 to 60 Gb/s. With 64 examples per
rank, codes make updates faster up to 15 Gb/s; with 256 examples, up to 5 Gb/s. At 100
Gb/s no code saves time.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.compression import crossovers, speeds
from studies.compression.crossover_claims import CLAIMS

from dml.runs import folder, writers

Row = dict[str, Any]

CODES = (
    "int8+feedback,natural,qsgd:4,terngrad,sign+feedback,one_bit+feedback,"
    "top_k:0.01+feedback,random_k:0.01+feedback,power_sgd:2+feedback,"
    "power_sgd_alternating:2+feedback"
)

FLAGS = flags.define("seed")
FLAGS.text("codes", CODES, "Comma-separated codes, as in --reduce.")
FLAGS.text("ranks", "2,4,8,16,32,64,128,256,512,1024", "Numbers of ranks.")
FLAGS.text("gbps", "0.1,0.4,1,4,10,25,100,400", "Bandwidths of setups in Gb/s.")
FLAGS.text("examples", "16,64,256", "Numbers of examples of a rank in a minibatch.")
FLAGS.number("latency_us", 20, "Latency of a message in microseconds.", 0, 1e6)
FLAGS.integer("matrices", 16, "Number of matrices of 512 x 512 elements.", 1, 256)
FLAGS.integer("repeats", 7, "Number of timings, whose median counts.", 1)


def main(argv: Sequence[str]) -> Row:
    """Measure the codes and predict all sums; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "crossover")
    plan = crossovers.plan(FLAGS)
    grads = speeds.matrices(FLAGS.matrices, FLAGS.seed)
    names = list(dict.fromkeys(FLAGS.codes.split(",")))
    for name in names:
        speeds.check(name, grads)
    table = writers.tables(
        crossovers.columns(plan.ranks), crossovers.TITLES, FLAGS.wide
    )
    rows: list[Row] = []
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=crossovers.conclude
    ) as writer:
        measured = [speeds.measure(name, grads, FLAGS.repeats) for name in names]
        cores = crossovers.measure_core(measured[0].length, FLAGS.repeats)
        for row in crossovers.rows(measured, plan, cores):
            rows.append(row)
            writer.row(row)
        crossovers.draw(path / "crossover", rows)
        summary = crossovers.summarize(rows, cores)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
