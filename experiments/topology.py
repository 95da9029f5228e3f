"""Every all-reduce on every network: where each wins, what a network costs.

python experiments/topology.py --p=4096
python experiments/topology.py --p=64,1024 --networks=torus:8x8x16,slim_fly
python experiments/topology.py --p=65536 --networks=fat_tree,slim_fly --sizes=256KB,64MB

Cost: 4096 ranks 50 s of one core, 64 ranks 7 s; 65 536 as above some minutes.
Result: halving-doubling wins until bandwidth binds, then rings on every network whose
links it crowds. Slim Fly costs 61 % of a fat tree a rank, 49 % of a torus; the fastest
all-reduce of 64 MB takes as long on all three, that of 16 KB 3/4 on the fat tree.
BytePS runs in its paper's time, and with spare hosts one stage more.
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
    "Names, the smallest of which that holds p is taken, or shapes such as torus:8x8.",
)
FLAGS.text("algorithms", "all", f"All-reduces, of {', '.join(SCHEDULES)}; or all.")
FLAGS.text(
    "sizes", "", "Bytes, multiples of 4p [4p times 1, 16, 256, ... up to 256MB]."
)
FLAGS.integer(
    "group", 16, "Ranks of a hierarchical one's group, where hosts have one each.", 1
)
FLAGS.integer("workers", 8, "Workers of BytePS, and as many spare hosts.", 2)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Evaluate as the flags say; return the summary."""
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
        kept = writing.tabulated(writer, topology_report.TABLES, plan)
        summary = topology_report.totals(kept)
        topology_report.draw(path / "topology", kept["race"], names)
        writer.summary(summary)
    return summary


def chosen(p: int) -> list[int]:
    """Return the bytes to reduce over p ranks: chunks are even, of a word at least."""
    if p < 2:
        raise BadInput(f"expected at least 2 ranks, got --p={p}; pass more")
    word = topology_rows.ITEMSIZE
    if not FLAGS.sizes:
        most = max(word * p, 256 << 20)
        return [n for k in range(9) if (n := word * p * 16**k) <= most]
    found = [flags.nbytes(size) for size in FLAGS.sizes.split(",")]
    for nbytes in found:
        if not nbytes or nbytes % (word * p):
            raise BadInput(
                f"expected multiples of {word * p} bytes, a word a rank of {p}, "
                f"got {nbytes}B; correct --sizes"
            )
    return sorted(found)


if __name__ == "__main__":
    flags.run(main)
