"""Small linear models, dense and sparse, and their training on virtual ranks."""

from functools import cache

import numpy as np
from scipy import sparse

from dml import sim
from dml.metrics.timer import Timer
from dml.models.linear.problem import linear
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered

EXAMPLES, FEATURES = 60, 33
LOSSES = ("logistic", "squared_hinge", "squared")


@cache
def table(kind="dense"):
    """Return features, and the classes -1 and 1."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((EXAMPLES, FEATURES))
    y = np.sign(x @ rng.standard_normal(FEATURES) + rng.standard_normal(EXAMPLES))
    if kind == "sparse":
        x *= rng.random(x.shape) < 0.2
        return sparse.csr_array(x), y
    return x, y


def batches(count, batch=6):
    """Return the indices of minibatches of distinct examples."""
    return [
        np.random.default_rng(seed).choice(EXAMPLES, batch, replace=False)
        for seed in range(count)
    ]


def train(strategy, size, given, items, update=None, **own):
    """Return parameters, Steps, and messages and bytes of each virtual rank.

    given: (features, targets, loss, l2).
    """
    own.setdefault("allreduce", ALLREDUCE["ring"])

    def program(comm):
        counting = Metered(comm)
        problem = linear(*given)
        timer = Timer(counting.Wtime)
        steps = list(
            strategy(problem, items, update, comm=counting, timer=timer, **own)
        )
        sent = counting.messages_sent, counting.bytes_sent
        return steps[-1].params(), steps, sent

    results = sim.run(program, size)
    params = results[0][0]
    assert all(other is None for other, *_ in results[1:])
    return params, results[0][1], [sent for *_, sent in results]


def refusals(strategy, size, given, items, **own):
    """Return the messages of BadInput on each virtual rank that raises it."""
    own.setdefault("allreduce", ALLREDUCE["ring"])

    def program(comm):
        try:
            list(
                strategy(
                    linear(*given),
                    items,
                    None,
                    comm=Metered(comm),
                    timer=Timer(),
                    **own,
                )
            )
        except BadInput as error:
            return str(error)

    return [text for text in sim.run(program, size) if text]
