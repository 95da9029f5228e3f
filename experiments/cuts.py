"""Multi-way graph cuts by HOGWILD! and its rivals, on one host's cores.

mpirun -n 4 python experiments/cuts.py                   slices of a brain, in 3 classes
python experiments/cuts.py --threads=2 --data=photograph    beside the exact least cut
python experiments/cuts.py --data=entities --updates=cyclades
python experiments/cuts.py --data=graph.max                 a DIMACS max-flow file

A cut costs the weights of its edges; a bound is below every cut's cost. The share of
nodes that are labelled as the best cut does is cut_accuracy. Labels of a picture or a
volume are drawn, as segments.svg and .png.

Cost: 11 s by 4 ranks on two cores, the bound included.
Result: 92,664 points of 8 slices, 0.93 % above the relaxation's optimum; their cut is
0.17 % above the bound, and has 94.5 % of the maps' classes. 13.7 M updates/s by two
workers.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_cuts import Sizes, cuts
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_ways import UPDATES

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, UPDATES)
FLAGS.text("data", "volume", "Or photograph, entities, generated, or a DIMACS file.")
FLAGS.integer("slices", Sizes().slices, "Of the volume.", 1)
FLAGS.integer("every", Sizes().every, "Point along each axis of a picture is taken.", 1)
FLAGS.number(
    "smoothness",
    Sizes().smoothness,
    "What it costs to part two points that look alike.",
    0,
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    sizes = Sizes(FLAGS.slices, FLAGS.every, FLAGS.smoothness)
    task = cuts(FLAGS.data, sizes, FLAGS.reference, FLAGS.dtype, FLAGS.seed)
    return run(task, FLAGS, "cuts")


if __name__ == "__main__":
    flags.run(main)
