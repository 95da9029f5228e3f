"""Pipelines of K stages and M microbatches: GPipe's Table 2 on the virtual cluster.

python experiments/pipeline.py                                1 GB/s, 1 us a message
python experiments/pipeline.py --network=1e-5,1e-8,0          a tenth of that
python experiments/pipeline.py --stages=8 --microbatches=32 --rounds=4

The layers of a GPT are timed here, cut into stages that are as even as can be, and
played on virtual ranks that send boundaries of real size. Published speed-ups are
relative to K = 2 at M = 1, where one device computes at any time; ours to one device.

Cost: 25 s on 2 cores; with --measured= 5 s of one.
Result: of nine published cells six are ours within 10 %. At M = 4 and K = 4, 8 the
published 3.2 and 4.8 are above the formula's 2.29 and 2.91, and at K = 8, M = 1 the 1.3
is above 1: that paper's batches differ from cell to cell, adjusted to memory. On two
real cores M = 32 is 1.4 to 1.9 times one; 1f1b keeps 14 MB where gpipe keeps 133.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.pipeline.claims import CLAIMS
from studies.pipeline.tables import MOST_STAGES, TABLES, Plan, scheduled
from studies.pipeline.virtual import Layers, measured_seconds, parse_seconds
from studies.tensor.parts import devices

from dml.figures import schedules as schedule_figure
from dml.runs import folder as runs
from dml.runs import writers
from dml.sim.networks.named import network
from dml.wire.plans.pipeline_facts import bubble
from dml.wire.plans.stages import stages

FLAGS = flags.define("network")
FLAGS.integer("stages", 4, "K, where schedules are compared.", 1)
FLAGS.integer("microbatches", 8, "M, where schedules are compared.", 1)
FLAGS.integer("rounds", 2, "Parts of a stage: v of interleaved.", 1)
FLAGS.text("layer_seconds", "", "Seconds of a microbatch by layer; empty: measured.")
FLAGS.integer("blocks", 46, "Blocks of the GPT; an embedding and a head are added.", 1)
FLAGS.integer("width", 128, "Width of the GPT in units.", 1)
FLAGS.integer("heads", 4, "Number of attention heads.", 1)
FLAGS.integer("length", 64, "Tokens of an example.", 1)
FLAGS.integer("vocabulary", 512, "Number of tokens.", 1)
FLAGS.integer("microbatch", 4, "Examples of a microbatch.", 1)
FLAGS.text("measured", "4,32", "Microbatches of races on real devices; none: no race.")
FLAGS.integer("devices", 2, "Stages of a race, a core each.", 1)
FLAGS.integer("few", 4, "Blocks of the GPT that races.", 1)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Measure, play and draw as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    fixed = parse_seconds(FLAGS.layer_seconds)
    most = max(MOST_STAGES, FLAGS.stages * FLAGS.rounds)
    stages(fixed or [1.0] * (FLAGS.blocks + 2), most)  # are not too many
    for size in (MOST_STAGES, FLAGS.stages):
        network(FLAGS.network, size)  # is one
    if FLAGS.measured:
        devices(FLAGS.devices)
    path = runs.path(FLAGS.out, "pipeline")
    summary: dict[str, Any] = {}
    tables = writers.tables(
        {name: table.columns for name, table in TABLES.items()},
        {name: table.title for name, table in TABLES.items()},
    )
    with writing.first(path, FLAGS, None, tables, claims=CLAIMS) as writer:
        plan = planned(fixed or measured_seconds(shape(FLAGS.blocks), FLAGS.microbatch))
        for name, table in TABLES.items():
            for row in table.rows(plan):
                writer.row({"table": name} | row)
                summary |= table.keeps(row)
        pictured(path, plan)
        print()
        writer.summary(summary)
    return summary


def shape(blocks: int) -> tuple[int, ...]:
    """Return the sizes of the GPT with so many blocks: transformer.Shape's."""
    return FLAGS.vocabulary, FLAGS.length, blocks, FLAGS.width, FLAGS.heads


def planned(seconds: Sequence[float]) -> Plan:
    nbytes = 4 * FLAGS.microbatch * FLAGS.length * FLAGS.width
    mean = 1e3 * sum(seconds) / len(seconds)
    print(
        f"{len(seconds)} layers of {1e3 * min(seconds):.2f} to "
        f"{1e3 * max(seconds):.2f} ms (mean {mean:.2f}), boundaries of "
        f"{nbytes / 1e3:,.0f} kB over --network={FLAGS.network}"
    )
    layers = Layers(seconds, nbytes, FLAGS.network)
    return Plan(
        layers,
        FLAGS.stages,
        FLAGS.microbatches,
        FLAGS.rounds,
        flags.integers(FLAGS, "measured", empty=True),
        shape(FLAGS.few),
        FLAGS.microbatch,
    )


def pictured(path: Any, plan: Plan) -> None:
    """Print every schedule, and draw all in one figure."""
    titled = {
        f"{name}: {bubble(schedule):.1%} bubble": schedule
        for name, schedule in scheduled(plan).items()
    }
    for title, schedule in titled.items():
        print("\n".join(["", title, *schedule_figure.lines(schedule)]))
    schedule_figure.draw(path / "schedules", titled)


if __name__ == "__main__":
    flags.run(main)
