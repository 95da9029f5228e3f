"""Matrix factorisation whose columns are split over ranks, against one worker."""

from functools import partial
from itertools import islice

import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.models.sparse.completion import in_columns
from dml.strategies.operation import operation
from dml.strategies.serial import serial
from dml.update.table import table
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from tests.strategies.shared.small import ratings

BATCH, UPDATES = 32, 25


def trained(comm, problem, strategy, **own):
    """Return the losses, the table on rank 0, and the words sent by an update."""
    comm, update = Metered(comm), partial(table, "sgd", rate=4.0)
    batches = islice(minibatches(problem.examples, BATCH, 0), UPDATES)
    steps = [*strategy(problem, batches, update, comm=comm, timer=Timer(), **own)]
    return [step.loss for step in steps], steps[-1].params(), steps[-1].words_sent


# 4 factors: 3 ranks have 2, 1 and 1 of them; the last of 5 ranks has the bias alone
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_columns_of_any_ranks_learn_as_serial_does(ranks):
    problem = ratings()
    (want,) = sim.run(lambda comm: trained(comm, problem, serial), 1)
    split = in_columns(problem)
    own = {"allreduce": ALLREDUCE["ring"], "batch": BATCH}
    found = sim.run(lambda comm: trained(comm, split, operation, **own), ranks)
    for losses, _, _ in found:
        np.testing.assert_allclose(losses, want[0], rtol=1e-5)
    assert want[0][-1] < 0.9 * want[0][0]
    np.testing.assert_allclose(found[0][1], want[1], rtol=1e-4, atol=1e-5)
    assert all(one[1] is None for one in found[1:])
    # the products and the norm
    words = sum(one[2] for one in found)
    assert words == 2 * (ranks - 1) * (BATCH + 1)
