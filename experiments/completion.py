"""A matrix completed from its ratings by HOGWILD! and its rivals, on one host's cores.

mpirun -n 4 python experiments/completion.py --updates=cyclades   the bits of one worker
mpirun -n 4 python experiments/completion.py --updates=rotation   Gemulla 2011
mpirun -n 2 python experiments/completion.py --updates=operation  columns of factors
python experiments/completion.py --threads=2                      MovieLens, 100 k
python experiments/completion.py --data=ml-1m/ratings.dat --k=20
python experiments/completion.py --data=counts/                   GloVe's matrix

A folder of counts is what experiments/cooccurrence.py leaves.

Cost: 10 s by 4 ranks on two cores, the reference included; 60 epochs take 0.6 s.
Result: 0.6 % above alternating least squares, RMSE 0.879 on held-out ratings, 9.4 M
updates/s by one worker, 11.4 M by two.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_problems import counts, ratings
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_ways import FACTORISING, UPDATES

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, [*UPDATES, *FACTORISING])
FLAGS.text(
    "data", "movielens", "Or generated, a file of ratings, or a folder of counts."
)
FLAGS.integer("k", 10, "Factors of a row.", 1)
FLAGS.integer(
    "blocks", 8, "Blocks of users and of items, in rotation: at least the ranks.", 1
)
FLAGS.number("mu_user", 0.1, "Weight of half a user's squared row, a rating.", 0)
FLAGS.number("mu_item", 0.2, "Weight of half an item's squared row, a rating.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    if Path(FLAGS.data).is_dir():
        task = counts(FLAGS.data, FLAGS.k, FLAGS.dtype, FLAGS.seed)
    else:
        mus = FLAGS.mu_user, FLAGS.mu_item
        task = ratings(FLAGS.data, FLAGS.k, mus, FLAGS.dtype, FLAGS.seed)
    return run(task, FLAGS, "completion")


if __name__ == "__main__":
    flags.run(main)
