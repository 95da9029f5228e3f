"""Sparse linear classification by HOGWILD! and other strategies on shared memory.

mpirun -n 4 python experiments/svm.py --updates=hogwild        20 Newsgroups
python experiments/svm.py --nolost --peers                    compared with scikit-learn
python experiments/svm.py --threads=2 --loss=logistic --data=reuters
mpirun -n 2 python experiments/svm.py --updates=cyclades  bit-identical to one worker
python experiments/svm.py --data=a9a.svm --updates=serial

Cost: 7 s by 4 ranks on two cores with the optimum; 20 epochs take 0.05 s.
Result: objective 0.6 % above liblinear's optimum, 95.6 % of the held-out documents
correct, 5.5 M updates/s by one worker (scikit-learn: 5.3 M).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lab import flags
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_problems import LOSSES, documents
from studies.shared_memory.sparse_runs import run
from studies.shared_memory.sparse_strategies import UPDATES
from studies.shared_memory.svm_peers import peers

FLAGS = flags.define("seed", "watchdog")
sparse_flags.define(FLAGS, UPDATES)
FLAGS.text(
    "data", "newsgroups", "Data: newsgroups, reuters, generated[:Ω,Δ,ρ], a file."
)
FLAGS.choice("loss", "hinge", list(LOSSES), "Loss of an example.")
FLAGS.number("mu", 1e-4, "L2 weight.", 1e-12)
FLAGS.switch("peers", False, "Comparison with scikit-learn and numpy.")


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summary of this process's rank."""
    flags.parse(FLAGS, argv)
    task = documents(FLAGS.data, FLAGS.loss, FLAGS.mu, FLAGS.dtype, FLAGS.seed)
    others = partial(peers, loss=FLAGS.loss) if FLAGS.peers else None
    return run(task, FLAGS, "svm", others)


if __name__ == "__main__":
    flags.run(main)
