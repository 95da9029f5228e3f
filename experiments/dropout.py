"""A dense network whose updates dropout makes sparse, by HOGWILD! and its rivals.

python experiments/dropout.py --threads=2
mpirun -n 2 python experiments/dropout.py --updates=locked --keep=0.2

An update touches the hidden units that are kept for its image, row by row.

Cost: 8 s of one core, the reference included; 120 epochs take 0.9 s.
Result: 0.8 % above L-BFGS from the same start, 96 % of the held-out digits right.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_problems import images
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_ways import UPDATES

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, UPDATES)
FLAGS.number("keep", 0.25, "Chance of a unit to be kept.", 1e-3, 1)
FLAGS.integer("hidden", 64, "Hidden units.", 1)
FLAGS.integer("masks", 2, "Masks of each image, drawn once.", 1)
FLAGS.number("mu", 0.03, "Weight of half a unit's squared row.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    sizes = FLAGS.keep, FLAGS.hidden, FLAGS.masks, FLAGS.mu
    task = images(*sizes, FLAGS.dtype, FLAGS.seed)
    return run(task, FLAGS, "dropout")


if __name__ == "__main__":
    flags.run(main)
