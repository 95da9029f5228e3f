"""Bytes sent by tensor-parallel layers: compiled program and formula.

python experiments/tensor.py                          2 and 4 CPU devices
python experiments/tensor.py --sequence               sequence-parallel activations
python experiments/tensor.py --tensor=8 --repeats=0   no timing
python experiments/tensor.py --experts=8 --ring       mixture of experts, ring attention

Each layer of a GPT is compiled, forward and backward, over t devices and compared with
the dense layer; the collectives of the program are counted. A block is timed on one
device and on t devices with a core each, alternating.

Cost: 20 s of one core, and 15 steps of a block.
Result: 2 + 2 all-reduces of the activations per block, in each of which a device sends
2 b s h (t - 1)/t elements (b examples, s positions, h units); with --sequence twice as
many collectives of half the size. Results differ from the dense layers by at most 1e-6.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from lab import compiling, flags, writing
import numpy as np
from studies.tensor import cases, measurements, report
from studies.tensor.claims import two_and_two

from dml.models.layers.experts import Mixture
from dml.models.networks.transformer import Shape
from dml.runs import folder, writers

TOLERANCE = 1e-4  # float32 sums of thousands of numbers in another order
FLAGS = flags.define("seed")
FLAGS.text("tensor", "2,4", "Numbers of devices, 2 or more.")
FLAGS.switch(
    "sequence", False, "Sequence parallelism of the activations between layers."
)
FLAGS.switch("ring", False, "Measurement of ring attention.")
FLAGS.integer("experts", 0, "Number of experts of a mixture; 0: none.", 0)
FLAGS.integer("choices", 1, "Number of experts per token.", 1)
FLAGS.integer("width", 1024, "Model width in units.", 1)
FLAGS.integer("heads", 16, "Number of attention heads.", 1)
FLAGS.integer("vocabulary", 8192, "Number of tokens of the vocabulary.", 1)
FLAGS.integer("length", 128, "Number of tokens of an example.", 1)
FLAGS.integer("batch", 4, "Examples in a minibatch.", 1)
FLAGS.integer("repeats", 7, "Number of timings, whose median is taken; 0: none.", 0)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compile, compare, count and time with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    sizes = flags.integers(FLAGS, "tensor")
    shape = Shape(FLAGS.vocabulary, FLAGS.length, 1, FLAGS.width, FLAGS.heads)
    mixture = Mixture(FLAGS.experts, FLAGS.width, 4 * FLAGS.width, FLAGS.choices)
    selection = cases.Selection(shape, FLAGS.batch, FLAGS.sequence, mixture, FLAGS.ring)
    measurements.devices(max(sizes))
    for size in sizes:
        cases.check(selection, size)
    path = folder.path(FLAGS.out, "tensor")
    with (
        compiling.explain_memory_errors("a smaller --batch, --width or --vocabulary"),
        writing.run_writer(
            path,
            FLAGS,
            None,
            writers.table(report.COLUMNS, FLAGS.wide),
            claims=(two_and_two,),
            conclude=report.conclude,
        ) as writer,
    ):
        compiling.enable_cache()
        layers = cases.selected_cases(selection, FLAGS.seed)
        rows, summary = [], {}
        for size in sizes:
            summary |= measure(size, layers, rows, writer)
        report.draw(path / "tensor", rows)
        summary["equals_formula"] = all(map(report.equal, rows))
        writer.summary(summary)
        sys.stdout.write(report.verdict(summary))
    return summary


def measure(
    size: int, layers: dict[str, cases.Case], rows: list, writer: Any
) -> dict[str, Any]:
    """Compare all layers over `size` devices with the dense ones; time a block.

    Rows are written and appended to `rows`.
    """
    cut = {name: case.cut(size) for name, case in layers.items()}
    dense = {name: case.dense(size) for name, case in layers.items()}
    difference = max(
        measurements.largest_difference(cut[name], dense[name]) for name in layers
    )
    if not difference < TOLERANCE:  # NaN fails, too
        raise FloatingPointError(
            f"expected results of the dense layers on {size} devices, got relative "
            f"differences up to {difference:.2g}; this is a bug of dml.models"
        )
    for name, layer in cut.items():
        formula = layers[name].formula(size)
        for row in report.rows(layer.collectives, name, size, formula):
            rows.append(row)
            writer.row(row)
    summary = {f"largest_gap_{size}": difference, **report.block_totals(rows, size)}
    if FLAGS.repeats and size <= len(os.sched_getaffinity(0)):
        calls = {"dense": (1, dense["block"].run), "cut": (size, cut["block"].run)}
        times = measurements.time_alternately(calls, FLAGS.repeats)
        medians = {name: float(np.median(times[name])) for name in calls}
        summary |= {
            f"block_ms_1_beside_{size}": 1e3 * medians["dense"],
            f"block_ms_{size}": 1e3 * medians["cut"],
            f"speedup_{size}": medians["dense"] / medians["cut"],
        }
    return summary


if __name__ == "__main__":
    flags.run(main)
