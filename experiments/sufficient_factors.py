"""Sufficient factors, servers or all-reduces for each layer (Poseidon, Zhang 2017).

python experiments/sufficient_factors.py
python experiments/sufficient_factors.py --networks=vgg19 --ranks=32 --gbps=5,10,100
mpirun -n 4 python experiments/vision.py --strategy=poseidon --model=mlp      training

The gradient of an M x N dense layer is the product of two matrices with K rows, one for
each example or token of a worker. The command counts the words of the paper's example
on virtual nodes, and tabulates for 2 to 64 nodes the exchange of each layer that has
the fewest words. Then it runs the exchanges of an update on --ranks virtual nodes, with
buffers scaled down by 256, while the layers compute at --teraflops.

Cost: 12 s on one core.
Result: 3.67, 33.6 and 58.7 M words, as published. Three dense layers have 86 % of the
parameters of VGG-19; by factors 8 nodes are 7.9 times as fast as one at 10 Gb/s, by
servers 6.4 times. On 8 nodes no layer of BERT is sent by factors: it has too many rows.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.factors import example, report, throughput
from studies.factors.claims import CLAIMS
from studies.factors.layers import NETWORKS

from dml.runs import folder, writers

FLAGS = flags.define("seed")
FLAGS.text("networks", ",".join(NETWORKS), "Names of networks, comma-separated.")
FLAGS.text("nodes", "2,4,8,16,32,64", "Numbers of nodes, comma-separated, by layer.")
FLAGS.integer("ranks", 8, "Number of virtual nodes of an update.", 2, 256)
FLAGS.text("gbps", "1,2,5,10,20,40", "Bandwidths of a node in Gb/s, comma-separated.")
FLAGS.number("latency_us", 20, "Latency of a message in microseconds.", 0, 1e6)
FLAGS.number(
    "teraflops", 4, "Speed of a node in 10^12 operations per second.", 1e-3, 1e6
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Count, tabulate and run with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    names = flags.names(FLAGS.networks, NETWORKS, "networks")
    networks = {name: NETWORKS[name] for name in names}
    nodes = flags.integers(FLAGS, "nodes")
    clusters = [
        throughput.Cluster(
            FLAGS.ranks, gbps, 1e-6 * FLAGS.latency_us, 1e12 * FLAGS.teraflops
        )
        for gbps in flags.positive_numbers(FLAGS, "gbps")
    ]
    path = folder.path(FLAGS.out, "sufficient_factors")
    table = writers.tables(report.columns(nodes), report.TITLES, FLAGS.wide)
    rows: list[dict[str, Any]] = []
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        for tabulated in (
            example.rows(),
            report.layer_rows(networks, nodes),
            throughput.rows(networks, clusters),
        ):
            for row in tabulated:
                rows.append(row)
                writer.row(row)
        report.draw(path / "throughput", rows)
        summary = report.summarize(rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
