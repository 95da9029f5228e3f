"""Pipelines of K stages and M microbatches: GPipe's Table 2 on the virtual cluster.

python experiments/pipeline.py                                1 GB/s, 1 µs latency
python experiments/pipeline.py --network=1e-5,1e-8,0          a tenth of that speed
python experiments/pipeline.py --stages=8 --microbatches=32 --rounds=4

The layers of a GPT are timed on this machine and divided into stages of nearly equal
time. The stages run on virtual ranks that send boundaries of real size. Published
speed-ups are relative to K = 2 at M = 1, where one device computes at a time; ours are
relative to one device.

Cost: 25 s on 2 cores; with --measured= 5 s of one.
Result: six of nine published speed-ups are reproduced within 10 %. At M = 4, K = 4 and
8, 3.2 and 4.8 exceed the formula's 2.29 and 2.91: the paper's batch differs between
cells. On two real cores M = 32 is 1.4 to 1.9 times as fast as one device; 1f1b stores
14 MB of activations where gpipe stores 133.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.pipeline.claims import CLAIMS
from studies.pipeline.tables import MOST_STAGES, TABLES, Plan, scheduled
from studies.pipeline.virtual import Layers, measured_seconds, parse_seconds
from studies.tensor.measurements import devices

from dml.figures import schedules as schedule_figure
from dml.runs import folder as runs
from dml.runs import writers
from dml.sim.networks.named import network
from dml.wire.plans.pipeline_facts import bubble
from dml.wire.plans.stages import balanced_parts

FLAGS = flags.define("network")
FLAGS.integer("stages", 4, "Stages K of the compared schedules.", 1)
FLAGS.integer("microbatches", 8, "Microbatches M of the compared schedules.", 1)
FLAGS.integer("rounds", 2, "Parts v of a stage in the interleaved schedule.", 1)
FLAGS.text(
    "layer_seconds", "", "Seconds of each layer for a microbatch; empty: measured."
)
FLAGS.integer(
    "blocks", 46, "Number of blocks of the GPT, besides embedding and head.", 1
)
FLAGS.integer("width", 128, "Width of the GPT in units.", 1)
FLAGS.integer("heads", 4, "Number of attention heads.", 1)
FLAGS.integer("length", 64, "Number of tokens of an example.", 1)
FLAGS.integer("vocabulary", 512, "Number of tokens.", 1)
FLAGS.integer("microbatch", 4, "Examples of a microbatch.", 1)
FLAGS.text("measured", "4,32", "Microbatches measured on real devices; may be none.")
FLAGS.integer("devices", 2, "Number of stages on real devices, a core each.", 1)
FLAGS.integer("few", 4, "Number of blocks of the GPT on real devices.", 1)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Measure, play and draw with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    fixed = parse_seconds(FLAGS.layer_seconds)
    most = max(MOST_STAGES, FLAGS.stages * FLAGS.rounds)
    balanced_parts(fixed or [1.0] * (FLAGS.blocks + 2), most)  # raises if too many
    for size in (MOST_STAGES, FLAGS.stages):
        network(FLAGS.network, size)  # raises if the text is wrong
    if flags.integers(FLAGS, "measured", empty=True):
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
    """Return the fields of transformer.Shape for a GPT with `blocks` blocks."""
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
    """Print every schedule; draw all of them in one figure."""
    titled = {
        f"{name}: {bubble(schedule):.1%} bubble": schedule
        for name, schedule in scheduled(plan).items()
    }
    for title, schedule in titled.items():
        print("\n".join(["", title, *schedule_figure.lines(schedule)]))
    schedule_figure.draw(path / "schedules", titled)


if __name__ == "__main__":
    flags.run(main)
