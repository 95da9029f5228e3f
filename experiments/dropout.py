"""A network with dropout, whose updates are sparse, by HOGWILD! and other updates.

python experiments/dropout.py --threads=2
mpirun -n 2 python experiments/dropout.py --updates=locked --keep=0.2

An update changes the rows of the hidden units that the image's dropout mask keeps.

Cost: 8 s of one core with the reference; 120 epochs take 0.9 s.
Result: objective 0.8 % above L-BFGS from the same start, 96 % of the held-out digits
correct.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_problems import images
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_strategies import UPDATES

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, UPDATES)
FLAGS.number("keep", 0.25, "Probability that a unit is kept.", 1e-3, 1)
FLAGS.integer("hidden", 64, "Number of hidden units.", 1)
FLAGS.integer("masks", 2, "Number of masks of each image, drawn once.", 1)
FLAGS.number("mu", 0.03, "L2 weight of a unit's row.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    sizes = FLAGS.keep, FLAGS.hidden, FLAGS.masks, FLAGS.mu
    task = images(*sizes, FLAGS.dtype, FLAGS.seed)
    return run(task, FLAGS, "dropout")


if __name__ == "__main__":
    flags.run(main)
