"""Multi-way graph cuts by HOGWILD! and other updates, on the cores of one host.

mpirun -n 4 python experiments/cuts.py                   slices of a brain, in 3 classes
python experiments/cuts.py --threads=2 --data=photograph    compared with the exact cut
python experiments/cuts.py --data=entities --updates=cyclades
python experiments/cuts.py --data=graph.max                 a DIMACS max-flow file

The cost of a cut is the weight of its edges; the bound is a lower bound of this cost.
cut_accuracy is the share of nodes with the label of the best known cut. The labels of a
picture or a volume are drawn in segments.svg and segments.png.

Cost: 11 s by 4 ranks on two cores with the bound.
Result: for 92,664 points of 8 slices the objective is 0.93 % above the optimum of the
relaxation and the cut 0.17 % above the bound; 94.5 % of the points have the class of
the reference maps. 13.7 M updates/s by two workers.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_cuts import Sizes, cuts
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_strategies import UPDATES

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, UPDATES)
FLAGS.text(
    "data", "volume", "Data: volume, photograph, entities, generated, or a file."
)
FLAGS.integer("slices", Sizes().slices, "Number of slices of the volume.", 1)
FLAGS.integer("every", Sizes().every, "Stride of the points of a picture.", 1)
FLAGS.number(
    "smoothness",
    Sizes().smoothness,
    "Cost of a cut between two points of equal intensity.",
    0,
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    sizes = Sizes(FLAGS.slices, FLAGS.every, FLAGS.smoothness)
    task = cuts(FLAGS.data, sizes, FLAGS.reference, FLAGS.dtype, FLAGS.seed)
    return run(task, FLAGS, "cuts")


if __name__ == "__main__":
    flags.run(main)
