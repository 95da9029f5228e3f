"""Every all-reduce on every network: fastest algorithm, cost of the network.

python experiments/topology.py --p=4096
python experiments/topology.py --p=64,1024 --networks=torus:8x8x16,slim_fly
python experiments/topology.py --p=65536 --networks=fat_tree,slim_fly --sizes=256KB,64MB

Cost: 50 s of one core for 4096 ranks, 7 s for 64; some minutes for 65,536 as above.
Result: halving-doubling is fastest while latency dominates, rings where bandwidth
dominates and links are shared. A Slim Fly costs 61 % of a fat tree per rank and 49 % of
a torus. The fastest all-reduce of 64 MB takes equal time on all three; that of 16 KB
takes 3/4 of the time on the fat tree. BytePS has the time of its paper, plus one stage
with spare hosts.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.topology import report as topology_report
from studies.topology import rows as topology_rows
from studies.topology import tables as topology_tables
from studies.topology.claims import CLAIMS

from dml.runs import folder as runs
from dml.runs import writers
from dml.sim.networks.named import network
from dml.types import BadInput
from dml.wire.plans.schedules import SCHEDULES

FLAGS = flags.define()
FLAGS.text("p", "64,1024", "Numbers of ranks.")
FLAGS.text(
    "networks",
    "uniform,hosts,torus,fat_tree,dragonfly,slim_fly",
    "Networks: names (the smallest with p ranks) or shapes such as torus:8x8.",
)
FLAGS.text("algorithms", "all", f"All-reduces, of {', '.join(SCHEDULES)}; or all.")
FLAGS.text(
    "sizes", "", "Bytes of a buffer, multiples of 4p; empty: 4p 16^k up to 256MB."
)
FLAGS.integer("group", 16, "Group size of hierarchical on hosts of one rank.", 1)
FLAGS.integer("workers", 8, "Number of workers of BytePS and of its spare hosts.", 2)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Evaluate with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = runs.path(FLAGS.out, "topology")
    names = flags.names(FLAGS.algorithms, SCHEDULES, "algorithms")
    sizes = flags.integers(FLAGS, "p")
    texts = FLAGS.networks.split(",")
    plan = topology_report.Plan(
        names,
        built={(text, p): network(text, p) for p in sizes for text in texts},
        volumes={p: chosen(p) for p in sizes},
        group=FLAGS.group,
        workers=FLAGS.workers,
    )
    shown = writers.tables(topology_tables.columns(names), topology_tables.TITLES)
    with writing.first(path, FLAGS, None, shown, claims=CLAIMS) as writer:
        kept = writing.write_tables(writer, topology_report.TABLES, plan)
        summary = topology_report.totals(kept)
        topology_report.draw(path / "topology", kept["race"], names)
        writer.summary(summary)
    return summary


def chosen(p: int) -> list[int]:
    """Return the buffer sizes in bytes; every rank has chunks of equal size."""
    if p < 2:
        raise BadInput(f"expected at least 2 ranks, got --p={p}; pass more")
    word = topology_rows.ITEMSIZE
    if not FLAGS.sizes:
        most = max(word * p, 256 << 20)
        return [n for k in range(9) if (n := word * p * 16**k) <= most]
    sizes = [flags.nbytes(size) for size in FLAGS.sizes.split(",")]
    for nbytes in sizes:
        if not nbytes or nbytes % (word * p):
            raise BadInput(
                f"expected multiples of {word * p} bytes, a word per rank, got "
                f"{nbytes}B; correct --sizes"
            )
    return sorted(sizes)


if __name__ == "__main__":
    flags.run(main)
