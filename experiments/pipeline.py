"""Pipelines of K stages and M microbatches: GPipe's Table 2 on the virtual cluster.

python experiments/pipeline.py                                1 GB/s, 1 µs latency
python experiments/pipeline.py --network=1e-5,1e-8,0          a tenth of that speed
python experiments/pipeline.py --stages=8 --microbatches=32 --rounds=4
python experiments/pipeline.py --watch=1f1b                  a page that plays it

The layers of a GPT are timed on this machine and divided into stages of nearly equal
time. The stages run on virtual ranks that send activations of real size. Published
speed-ups are relative to K = 2 at M = 1, where one device computes at a time; ours are
relative to one device.

Cost: 25 s on 2 cores; 5 s of one core with --measured= (nothing on real devices).
Result: six of nine published speed-ups are reproduced within 10 %. At M = 4, K = 4 and
8, 3.2 and 4.8 exceed the formula's 2.29 and 2.91: the paper's batch differs between
cells. On two real cores a step with M = 32 is 1.4 to 1.9 times as fast as on one
device; 1f1b stores 14 MB of activations where gpipe stores 133 MB. Zero-bubble zb_h1
(Qi 2023) has a third of 1f1b's bubble; zb_h2 and zb_v have none without flushes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import flags, writing
from studies.pipeline import film
from studies.pipeline.claims import CLAIMS
from studies.pipeline.tables import (
    MOST_STAGES,
    TABLES,
    Arguments,
    conclude,
    make_schedules,
)
from studies.pipeline.virtual import Layers, measured_seconds, parse_seconds
from studies.pipeline.zero_bubble_claims import CLAIMS as ZERO_BUBBLE
from studies.tensor.measurements import devices

from dml.figures import schedules as schedule_figure
from dml.runs import folder, writers
from dml.sim.networks.named import network
from dml.wire.plans.pipeline.facts import bubble
from dml.wire.plans.pipeline.schedules import SCHEDULES
from dml.wire.plans.pipeline.stages import balanced_parts

FLAGS = flags.define("network")
FLAGS.integer("stages", 4, "Number of stages K of the compared schedules.", 1)
FLAGS.integer("microbatches", 8, "Microbatches M of the compared schedules.", 1)
FLAGS.integer("rounds", 2, "Parts v per stage in the interleaved schedule.", 1)
FLAGS.text("layer_seconds", "", "Seconds of layers, comma-separated; empty: measured.")
FLAGS.integer("blocks", 46, "Number of blocks of the GPT.", 1)
FLAGS.integer("width", 128, "Width of the GPT in units.", 1)
FLAGS.integer("heads", 4, "Number of attention heads.", 1)
FLAGS.integer("length", 64, "Number of tokens of an example.", 1)
FLAGS.integer("vocabulary", 512, "Number of tokens.", 1)
FLAGS.integer("microbatch", 4, "Number of examples per microbatch.", 1)
FLAGS.text(
    "measured", "4,32", "Numbers of microbatches on real devices; empty: not measured."
)
FLAGS.integer("devices", 2, "Number of real devices, with one stage and core each.", 1)
FLAGS.integer("few", 4, "Number of blocks of the GPT on real devices.", 1)
FLAGS.choice(
    "watch", None, [*SCHEDULES], "Schedule to play in watch.html, by equal layers."
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Time layers, run virtual pipelines, draw schedules; return the summary."""
    flags.parse(FLAGS, argv)
    given_seconds = parse_seconds(FLAGS.layer_seconds)
    parts = max(MOST_STAGES, FLAGS.stages * FLAGS.rounds)
    # Raises if there are more parts than layers.
    balanced_parts(given_seconds or [1.0] * (FLAGS.blocks + 2), parts)
    for size in (MOST_STAGES, FLAGS.stages):
        network(FLAGS.network, size)  # raises if the text is wrong
    path = folder.path(FLAGS.out, "pipeline")
    if FLAGS.watch:
        return watch(path, given_seconds or [1e-3] * (FLAGS.blocks + 2))
    if flags.integers(FLAGS, "measured", empty=True):
        devices(FLAGS.devices)
    summary: dict[str, Any] = {}
    tables = writers.tables(
        {name: table.columns for name, table in TABLES.items()},
        {name: table.title for name, table in TABLES.items()},
        FLAGS.wide,
    )
    with writing.run_writer(
        path, FLAGS, None, tables, claims=CLAIMS + ZERO_BUBBLE, conclude=conclude
    ) as writer:
        sizes = shape(FLAGS.blocks)
        seconds = given_seconds or measured_seconds(sizes, FLAGS.microbatch)
        arguments = table_arguments(seconds)
        for name, table in TABLES.items():
            for row in table.rows(arguments):
                writer.row({"table": name} | row)
                summary |= table.summary(row)
        show_schedules(path, arguments)
        print()
        writer.summary(summary)
    return summary


def watch(path: Path, seconds: Sequence[float]) -> dict[str, Any]:
    """Write watch.html, which plays one schedule; return the summary."""
    nbytes = 4 * FLAGS.microbatch * FLAGS.length * FLAGS.width  # of activations
    arguments = Arguments(
        Layers(seconds, nbytes, FLAGS.network),
        FLAGS.stages,
        FLAGS.microbatches,
        FLAGS.rounds,
    )
    schedule = make_schedules(arguments)[FLAGS.watch]
    with writing.run_writer(path, FLAGS, None) as writer:
        page = path / "watch.html"
        messages = film.write(page, FLAGS.watch, schedule, arguments.layers)
        summary = {"watch": FLAGS.watch, "messages": messages}
        writer.summary(summary)
    return summary


def shape(blocks: int) -> tuple[int, ...]:
    """Return the fields of transformer.Shape for a GPT with `blocks` blocks."""
    return FLAGS.vocabulary, FLAGS.length, blocks, FLAGS.width, FLAGS.heads


def table_arguments(seconds: Sequence[float]) -> Arguments:
    """Print the layers; return the arguments of the tables."""
    nbytes = 4 * FLAGS.microbatch * FLAGS.length * FLAGS.width  # of activations
    mean = 1e3 * sum(seconds) / len(seconds)
    print(
        f"{len(seconds)} layers of {1e3 * min(seconds):.2f} to "
        f"{1e3 * max(seconds):.2f} ms (mean {mean:.2f}), activations of "
        f"{nbytes / 1e3:,.0f} kB over --network={FLAGS.network}"
    )
    layers = Layers(seconds, nbytes, FLAGS.network)
    sizes = FLAGS.stages, FLAGS.microbatches, FLAGS.rounds
    measured = flags.integers(FLAGS, "measured", empty=True)
    real = shape(FLAGS.few), FLAGS.microbatch, not FLAGS.layer_seconds
    return Arguments(layers, *sizes, measured, *real)


def show_schedules(path: Any, arguments: Arguments) -> None:
    """Print every schedule; draw all of them in one figure."""
    titled = {
        f"{name}: {bubble(schedule):.1%} bubble": schedule
        for name, schedule in make_schedules(arguments).items()
    }
    for title, schedule in titled.items():
        print("\n".join(["", title, *schedule_figure.lines(schedule)]))
    schedule_figure.draw(path / "schedules", titled)


if __name__ == "__main__":
    flags.run(main)
