"""Every all-reduce on every network: fastest algorithm, cost of the network.

python experiments/topology.py --p=4096
python experiments/topology.py --p=64,1024 --networks=torus:8x8x16,slim_fly
python experiments/topology.py --p=64 --algorithms=ring,./mine.py:own --sizes=64KB
python experiments/topology.py --p=65536 --networks=fat_tree,slim_fly --sizes=256KB,64MB
python experiments/topology.py --p=64 --algorithms=all,optimal,in_network --sizes=4MB
python experiments/topology.py --p=64,256 --allocations=50 --networks=dragonfly,fat_tree

optimal are trees packed for the network, for up to 64 ranks and long buffers; with
in_network the routers add. With --allocations, jobs of p ranks get random free places
of a machine with groups of routers, a Dragonfly or a fat tree, between other jobs: each
all-reduce's bytes between groups and seconds are compared with those of the textbook's.

Cost: 1 to 2 minutes of one core for 4096 ranks, 16 s for 64; more for 65,536.
Result: Swing, on hosts and without links halving-doubling, is fastest for small
buffers, rings where bandwidth dominates and links are shared. Per rank, a Slim Fly
costs 61 % of a fat tree and 49 % of a torus. The fastest all-reduce of 64 MB takes
equal time on all three; that of 16 KB takes on the fat tree 5/6 of its time on Slim
Fly. On random places Swing sends 14 to 20 % less between groups than halving-doubling.
BytePS takes the time of its paper's formula, plus one stage with spare hosts.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.topology import report as topology_report
from studies.topology import rows as topology_rows
from studies.topology import tables as topology_tables
from studies.topology.allocations import MACHINE
from studies.topology.allreduce_claims import BINE, SWING, TRIVANCE
from studies.topology.claims import CLAIMS

from dml import extend
from dml.runs import folder, writers
from dml.sim.networks.named import network
from dml.sim.networks.named import texts as networks
from dml.types import BadInput

FLAGS = flags.define()
FLAGS.text("p", "64,1024", "Numbers of ranks.")
FLAGS.text(
    "networks",
    "uniform,hosts,torus,fat_tree,dragonfly,slim_fly",
    "Networks: names (the smallest with p ranks) or shapes such as torus:8x8, with "
    "rates as in torus@1e-6,1e-9,0, separated by commas or semicolons.",
)
FLAGS.text(
    "algorithms",
    "all",
    f"All-reduces, of {', '.join(topology_rows.KNOWN)}, FILE.py:NAME; or all: "
    f"{', '.join(topology_rows.COMPARED)}.",
)
FLAGS.text(
    "sizes", "", "Bytes of a buffer, multiples of 4p; empty: 4p·16^k up to 256MB."
)
FLAGS.text(
    "group",
    "16",
    "Group size of hierarchical on hosts of one rank; 8x16: of two levels.",
)
FLAGS.integer(
    "allocations", 0, "Random places of a job on each network with groups.", 0
)
FLAGS.integer("workers", 8, "Number of workers of BytePS, and of its spare hosts.", 2)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Evaluate with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "topology")
    every = ",".join(topology_rows.COMPARED)
    text = ",".join(
        every if name == "all" else name for name in FLAGS.algorithms.split(",")
    )
    known = topology_rows.KNOWN
    names = flags.names(text, known, "algorithms", extend.ALLREDUCES)
    sizes = flags.integers(FLAGS, "p")
    if not all(group := flags.widths(FLAGS.group)):
        raise BadInput(
            f"expected groups of at least 1, got --group={FLAGS.group}; pass more"
        )
    texts = networks(FLAGS.networks)
    arguments = topology_report.Arguments(
        names,
        networks={(text, p): network(text, p) for p in sizes for text in texts},
        buffer_bytes={p: buffer_bytes(p) for p in sizes},
        group=group,
        workers=FLAGS.workers,
        machines=machines(texts, sizes) if FLAGS.allocations else {},
        allocations=FLAGS.allocations,
    )
    console = writers.tables(
        topology_tables.columns(names), topology_tables.TITLES, FLAGS.wide
    )
    judged = CLAIMS + SWING + TRIVANCE + BINE
    with writing.run_writer(
        path, FLAGS, None, console, claims=judged, conclude=topology_report.conclude
    ) as writer:
        tables = writing.write_tables(writer, topology_report.TABLES, arguments)
        summary = topology_report.totals(tables)
        topology_report.draw(path / "topology", tables["race"], names)
        writer.summary(summary)
    return summary


def machines(texts: Sequence[str], sizes: Sequence[int]) -> dict[tuple[str, int], Any]:
    """Return the networks with groups; names without a shape are much larger than p."""
    found = {}
    for text in texts:
        for p in sizes:
            net = network(text, p if ":" in text else p * MACHINE)
            if hasattr(net, "group"):
                found[text, p] = net
    if not found:
        raise BadInput(
            f"expected a network with groups of routers for --allocations, got "
            f"{', '.join(texts)}; pass --networks=dragonfly,fat_tree"
        )
    return found


def buffer_bytes(p: int) -> list[int]:
    """Return the buffer sizes in bytes; the chunks of all ranks are equal in size."""
    if p < 2:
        raise BadInput(f"expected at least 2 ranks, got --p={p}; pass more")
    unit = topology_rows.ITEMSIZE * p
    if not FLAGS.sizes:
        most = max(unit, 256 << 20)
        return [nbytes for k in range(9) if (nbytes := unit * 16**k) <= most]
    sizes = [flags.nbytes(size) for size in FLAGS.sizes.split(",")]
    for nbytes in sizes:
        if not nbytes or nbytes % unit:
            raise BadInput(
                f"expected multiples of {unit} bytes, an element per rank, got "
                f"{nbytes}B; correct --sizes"
            )
    return sorted(sizes)


if __name__ == "__main__":
    flags.run(main)
