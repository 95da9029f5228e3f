"""What tensor parallel sends: read from the compiled program, beside the formula.

python experiments/tensor.py                          2 and 4 CPU devices
python experiments/tensor.py --sequence               the stream in slices of places
python experiments/tensor.py --tensor=8 --repeats=0   no timing

The layers of a GPT are compiled one by one, forward and backward, over t devices: each
gives the dense layer's numbers; its collectives are counted. A block is then timed on
one device and on t that have a core each, by turns.

Cost: 20 s of one core, and 15 steps of a block.
Result: 2 + 2 all-reduces of a stream a block, of 2 b s h (t - 1)/t words each; with
--sequence twice as many collectives of half as much. The dense numbers within 1e-6.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import compiling
import flags
import tensor_parts as parts
import tensor_report as report
import writing
from megatron_claims import two_and_two

from dml.metrics import runs, writers
from dml.models.tensor import tensor_transformer
from dml.models.transformer import Shape
from dml.types import BadInput

NEAR = 1e-4  # float32, sums of some thousand numbers in another order
FLAGS = flags.define("seed")
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
flags.text("tensor", "2,4", "Numbers of devices, 2 or more.", flag_values=FLAGS)
flags.switch("sequence", False, "Cut the stream's places too.", flag_values=FLAGS)
integer("width", 1024, "Of the stream.")
integer("heads", 16, "Of attention.")
integer("vocabulary", 8192, "Tokens there are.")
integer("length", 128, "Tokens of an example.")
integer("batch", 4, "Examples.")
flags.integer("repeats", 7, "Timings, of which the median.", 0, flag_values=FLAGS)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compile, compare, count and time as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    sizes = [flags.positive(size, "tensor") for size in FLAGS.tensor.split(",")]
    shape = Shape(FLAGS.vocabulary, FLAGS.length, 1, FLAGS.width, FLAGS.heads)
    ready(shape, sizes)
    path = runs.path(FLAGS.out, "tensor")
    with (
        compiling.fitting("a smaller --batch, --width or --vocabulary"),
        writing.first(
            path,
            FLAGS,
            None,
            writers.table(report.COLUMNS),
            report.verdicts(),
            claims=(two_and_two,),
        ) as writer,
    ):
        compiling.cached()
        given = parts.problem(shape, FLAGS.batch, FLAGS.seed)
        dense = {name: parts.dense(shape, name, given) for name in parts.PARTS}
        found, summary = [], {}
        for size in sizes:
            summary |= timed(shape, size, given, dense, found, writer)
        report.draw(path / "tensor", found)
        summary["as_the_formula_says"] = all(map(report.equal, found))
        writer.summary(summary)
    return summary


def ready(shape: Shape, sizes: Sequence[int]) -> None:
    """Get the devices; raise where the layers cannot be cut over them."""
    parts.devices(max(sizes))
    for size in sizes:
        if size < 2:
            raise BadInput(
                f"expected 2 devices or more, got --tensor={size}; the dense layers, "
                "which all are compared with, are those of 1"
            )
        tensor_transformer(shape, True, size, sequence=FLAGS.sequence)


def timed(
    shape: Shape, size: int, given: Any, dense: Any, found: list, writer: Any
) -> dict[str, Any]:
    """Compare and count all layers over so many devices; time a block."""
    layers = {
        name: parts.cut(shape, name, given, size, FLAGS.sequence) for name in dense
    }
    gap = max(parts.gap(layers[name], dense[name]) for name in dense)
    if not gap < NEAR:
        raise FloatingPointError(
            f"expected the dense layers' numbers from {size} devices, got others by "
            f"{gap:.2g} of the largest; this is a bug of dml.models.tensor"
        )
    for name, layer in layers.items():
        where = FLAGS.batch, size, FLAGS.sequence
        for row in report.rows(layer.collectives, name, shape, *where):
            found.append(row)
            writer.row(row)
    summary = {f"largest_gap_{size}": gap, **report.sums(found, size)}
    if FLAGS.repeats and size <= len(os.sched_getaffinity(0)):
        both = dense["block"], layers["block"]
        alone, together = parts.race(*both, size, FLAGS.repeats)
        summary |= {
            f"block_ms_1_beside_{size}": 1e3 * alone,
            f"block_ms_{size}": 1e3 * together,
            f"speedup_{size}": alone / together,
        }
    return summary


if __name__ == "__main__":
    flags.run(main)
