"""Words that cut layers send, counted in the compiled program, beside the formula.

python experiments/tensor.py                          2 and 4 CPU devices
python experiments/tensor.py --sequence               the stream in slices of places
python experiments/tensor.py --tensor=8 --repeats=0   no timing
python experiments/tensor.py --experts=8 --ring       a mixture, ring attention too

The layers of a GPT are compiled one by one, forward and backward, over t devices, and
compared with the dense layers; their collectives are counted. A block is then timed on
one device and on t devices with a core each, in turns.

Cost: 20 s of one core, and 15 steps of a block.
Result: 2 + 2 all-reduces of a stream a block, of 2 b s h (t - 1)/t words each; with
--sequence twice as many collectives of half as much. The dense numbers within 1e-6.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from lab import compiling, flags, writing
from studies.tensor import cases, parts, report
from studies.tensor.claims import two_and_two

from dml.models.experts import Mixture
from dml.models.transformer import Shape
from dml.runs import folder as runs
from dml.runs import writers

NEAR = 1e-4  # float32, sums of some thousand numbers in another order
FLAGS = flags.define("seed")
FLAGS.text("tensor", "2,4", "Numbers of devices, 2 or more.")
FLAGS.switch("sequence", False, "Cut the stream's places too.")
FLAGS.switch("ring", False, "Measure ring attention too.")
FLAGS.integer("experts", 0, "Experts of a mixture; 0: none.", 0)
FLAGS.integer("choices", 1, "Experts that a row is sent to.", 1)
FLAGS.integer("width", 1024, "Width of the stream in units.", 1)
FLAGS.integer("heads", 16, "Number of attention heads.", 1)
FLAGS.integer("vocabulary", 8192, "Tokens there are.", 1)
FLAGS.integer("length", 128, "Tokens of an example.", 1)
FLAGS.integer("batch", 4, "Examples.", 1)
FLAGS.integer("repeats", 7, "Timings, of which the median.", 0)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compile, compare, count and time as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    sizes = flags.integers(FLAGS, "tensor")
    shape = Shape(FLAGS.vocabulary, FLAGS.length, 1, FLAGS.width, FLAGS.heads)
    mixture = Mixture(FLAGS.experts, FLAGS.width, 4 * FLAGS.width, FLAGS.choices)
    wanted = cases.Selection(shape, FLAGS.batch, FLAGS.sequence, mixture, FLAGS.ring)
    parts.devices(max(sizes))
    for size in sizes:
        cases.check(wanted, size)
    path = runs.path(FLAGS.out, "tensor")
    with (
        compiling.fitting("a smaller --batch, --width or --vocabulary"),
        writing.first(
            path,
            FLAGS,
            None,
            writers.table(report.COLUMNS),
            claims=(two_and_two,),
        ) as writer,
    ):
        compiling.cached()
        known = cases.selected_cases(wanted, FLAGS.seed)
        found, summary = [], {}
        for size in sizes:
            summary |= timed(size, known, found, writer)
        report.draw(path / "tensor", found)
        summary["as_the_formula_says"] = all(map(report.equal, found))
        writer.summary(summary)
        sys.stdout.write(report.verdict(summary))
    return summary


def timed(
    size: int, known: dict[str, cases.Case], found: list, writer: Any
) -> dict[str, Any]:
    """Compare and count all layers over `size` devices; time a block."""
    layers = {name: case.cut(size) for name, case in known.items()}
    dense = {name: case.dense(size) for name, case in known.items()}
    gap = max(parts.largest_difference(layers[name], dense[name]) for name in known)
    if not gap < NEAR:
        raise FloatingPointError(
            f"expected the dense layers' numbers from {size} devices, got others by "
            f"{gap:.2g} of the largest; this is a bug of dml.models"
        )
    for name, layer in layers.items():
        formula = known[name].formula(size)
        for row in report.rows(layer.collectives, name, size, formula):
            found.append(row)
            writer.row(row)
    summary = {f"largest_gap_{size}": gap, **report.block_totals(found, size)}
    if FLAGS.repeats and size <= len(os.sched_getaffinity(0)):
        both = {"dense": (1, dense["block"].run), "cut": (size, layers["block"].run)}
        spent = parts.race(both, FLAGS.repeats)
        alone, together = (float(np.median(times)) for times in spent.values())
        summary |= {
            f"block_ms_1_beside_{size}": 1e3 * alone,
            f"block_ms_{size}": 1e3 * together,
            f"speedup_{size}": alone / together,
        }
    return summary


if __name__ == "__main__":
    flags.run(main)
