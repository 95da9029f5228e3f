"""Training in less device memory than a model needs: planned swapping (GeePS).

python experiments/offload.py
python experiments/offload.py --fractions=0.5,0.3 --width=256        a larger GPT
python experiments/offload.py --tflops=60 --memory_gbs=3300 --link_gbs=55   a newer GPU
python experiments/offload.py --virtual_width=0               nothing in virtual time

Four tables. `searched` compares Belady's rule with all plans of few buffers. `cyclic`
reads buffers in turn, the worst order for LRU. `trained` trains a GPT on this machine
with several capacities of device memory, and counts the copied bytes; on one process,
and on two virtual ranks in the last rows. `virtual` predicts the seconds of a larger
GPT on a device of given speeds: by default a K20, as in the paper, with 6 GB/s to the
host.

Cost: 60 s on 2 cores, most of it for compilation.
Result: all trainings have the same bits; the least memory is 13 % of that of all
buffers. On the virtual device a GPT whose activations are recomputed has 81 % of its
speed in 49 % of the memory; with saved activations 63 % in 50 %, and 31 % in 14 %.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.offload import report
from studies.offload.claims import CLAIMS
from studies.offload.workload import Device, Workload

from dml.models.networks.transformer import Shape
from dml.runs import folder, writers
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.integer("draws", 200, "Number of random orders of accesses per case.", 1, 10**6)
FLAGS.integer("buffers", 8, "Number of buffers that are read in turn.", 3, 100)
FLAGS.text(
    "fractions",
    "1,0.75,0.5,0.25,0.1",
    "Device memory, relative to that in which all buffers fit, comma-separated.",
)
FLAGS.integer("steps", 8, "Number of updates of the trained GPT; 0: none.", 0, 10**6)
FLAGS.integer("width", 128, "Width of the trained GPT in units.", 1)
FLAGS.integer("length", 64, "Number of tokens of an example.", 1)
FLAGS.integer("batch", 8, "Number of examples of a minibatch.", 2)
FLAGS.integer("blocks", 8, "Number of blocks of both GPTs.", 1)
FLAGS.integer("heads", 4, "Number of attention heads of both GPTs.", 1)
FLAGS.integer("vocabulary", 512, "Number of tokens of the vocabulary.", 1)
FLAGS.integer("virtual_width", 1024, "Width in virtual time in units; 0: none.", 0)
FLAGS.integer(
    "virtual_length", 512, "Length of an example in virtual time in tokens.", 1
)
FLAGS.integer("virtual_batch", 16, "Minibatch in virtual time in examples.", 1)
FLAGS.number("tflops", 3.5, "Speed of the virtual device in TFLOP/s.", 1e-6)
FLAGS.number(
    "memory_gbs", 208.0, "Memory bandwidth of the virtual device in GB/s.", 1e-6
)
FLAGS.number("link_gbs", 6.0, "Bandwidth from host to virtual device in GB/s.", 1e-6)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Search, train and plan with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "offload")
    if FLAGS.batch % 2:
        raise BadInput(
            f"expected an even --batch for two ranks, got {FLAGS.batch}; pass "
            f"--batch={FLAGS.batch + 1}"
        )
    sizes = FLAGS.vocabulary, FLAGS.blocks, FLAGS.heads
    larger = FLAGS.virtual_length, FLAGS.virtual_width, FLAGS.virtual_batch
    arguments = report.Arguments(
        draws=FLAGS.draws,
        buffers=FLAGS.buffers,
        trained=workload(*sizes, FLAGS.length, FLAGS.width, FLAGS.batch),
        steps=FLAGS.steps,
        virtual=workload(*sizes, *larger) if FLAGS.virtual_width else None,
        device=Device(
            1e12 * FLAGS.tflops, 1e9 * FLAGS.memory_gbs, 1e9 * FLAGS.link_gbs
        ),
        fractions=flags.positive_numbers(FLAGS, "fractions"),
        seed=FLAGS.seed,
    )
    console = writers.tables(report.COLUMNS, report.TITLES, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, console, claims=CLAIMS, conclude=report.conclude
    ) as writer:
        tables = writing.write_tables(writer, report.TABLES, arguments)
        report.draw(path, tables)
        summary = report.summarize(tables)
        writer.summary(summary)
    return summary


def workload(
    vocabulary: int, blocks: int, heads: int, length: int, width: int, batch: int
) -> Workload:
    """Return a GPT of these sizes."""
    return Workload(Shape(vocabulary, length, blocks, width, heads), batch)


if __name__ == "__main__":
    flags.run(main)
