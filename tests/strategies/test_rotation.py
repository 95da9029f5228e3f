"""Rotation of matrix completion (Gemulla 2011), and its columns split over ranks."""

from functools import partial
from itertools import islice

import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.models.sparse.completion import with_products
from dml.strategies import strategy
from dml.strategies.operation import operation
from dml.strategies.rotation import cells, in_blocks, orders, rotation
from dml.strategies.serial import serial
from dml.strategies.shared.hogwild import hogwild
from dml.strategies.shared.workers import Descent
from dml.types import BadInput
from dml.update.table import table as rows_table
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from tests.strategies.shared.small import documents, ratings

BLOCKS, EPOCHS = 4, 3
MINIBATCH, UPDATES = 32, 25


def train(comm, method=rotation, blocks=BLOCKS, momentum=0.0, problem=None, **own):
    """Return the losses, and the bytes of the table on rank 0."""
    problem, parts = in_blocks(problem or ratings(), blocks)
    update = Descent(lambda epoch: 0.05 * 0.8 ** (epoch - 1), momentum)
    arguments = problem, islice(orders(parts), EPOCHS), update
    losses = []
    for step in method(*arguments, comm=Metered(comm), timer=Timer(), **own):
        losses.append(step.loss)
        if step.epoch == EPOCHS:
            table = step.params()
    assert step.number == EPOCHS * problem.examples
    return losses, None if table is None else table.tobytes()


def on_ranks(size, network=None, **own):
    first, *others = sim.run(lambda comm: train(comm, **own), size, network)
    assert all(one == (first[0], None) for one in others)
    return first


@pytest.mark.parametrize("by_messages", (True, False))
def test_any_ranks_have_the_bits_of_one_by_both_media(by_messages):
    losses, table = on_ranks(1, by_messages=by_messages)
    assert losses == sorted(losses, reverse=True)
    for size in (2, 3, 4):
        assert on_ranks(size, by_messages=by_messages) == (losses, table)
    assert on_ranks(3, sim.Uniform(host=2, eager=0)) == (losses, table)


def test_one_rank_is_one_worker_of_hogwild():
    assert on_ranks(1)[1] == on_ranks(1, method=hogwild)[1]


def test_blocks_have_all_rows_once_cells_all_edges_and_sides_about_equal_loads():
    whole = ratings()
    problem, parts = in_blocks(whole, BLOCKS)
    blocks, edges = problem.kernel.blocks, whole.kernel.data.edges.rows.reshape(-1, 2)
    rows = [row for block in blocks for row in range(*block.indices(99))]
    assert rows == list(range(len(whole.params)))
    assert sorted(np.concatenate(parts)) == list(range(whole.examples))
    for (user, item), part in zip(cells(BLOCKS, 2), parts, strict=True):
        for side, block in enumerate((user, BLOCKS + item)):
            assert (edges[part, side] >= blocks[block].start).all()
            assert (edges[part, side] < blocks[block].stop).all()
    degrees = np.bincount(edges.ravel())
    loads = np.array([degrees[block].sum() for block in blocks])
    # a bound of two blocks is off by less than the edges of a row
    assert (abs(loads - whole.examples / BLOCKS) <= degrees.max()).all()


def test_blocks_without_rows_may_travel():
    uneven = ratings()
    uneven.kernel.data.edges.rows[::2] = 7  # one user has all ratings
    blocks = in_blocks(uneven, BLOCKS)[0].kernel.blocks
    assert 0 in {block.stop - block.start for block in blocks}
    one, many = (on_ranks(size, problem=uneven, by_messages=True) for size in (1, 3))
    assert one == many


def test_epochs_shuffle_the_edges_of_each_cell():
    parts = in_blocks(ratings(), BLOCKS)[1]
    one, two = islice(orders(parts), 2)
    assert one.visits.tolist() != two.visits.tolist()
    for order in (one, two):
        for n, edges in enumerate(parts):
            here = order.visits[order.bounds[n] : order.bounds[n + 1]]
            assert sorted(here) == sorted(edges)


@pytest.mark.parametrize(
    "size, own, message",
    [
        (5, {}, "at most 4 ranks for 4 blocks, got 5"),
        (1, {"momentum": 0.5}, "no momentum with rotation, got 0.5"),
        (1, {"blocks": 26}, "1 to 25 blocks of rows, got 26"),
    ],
)
def test_what_rotation_cannot_do_is_refused(size, own, message):
    with pytest.raises(BadInput, match=message):
        on_ranks(size, **own)


def test_a_problem_without_blocks_is_refused():
    with pytest.raises(BadInput, match="kernel.blocks for --strategy=rotation"):
        strategy("rotation", documents())


def trained(comm, problem, strategy, **own):
    """Return the losses, the table on rank 0, and the words sent by an update."""
    comm, update = Metered(comm), partial(rows_table, "sgd", rate=4.0)
    batches = islice(minibatches(problem.examples, MINIBATCH, 0), UPDATES)
    steps = [*strategy(problem, batches, update, comm=comm, timer=Timer(), **own)]
    return [step.loss for step in steps], steps[-1].params(), steps[-1].words_sent


# 4 factors: 3 ranks have 2, 1 and 1 of them; the last of 5 ranks has the bias alone
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_columns_of_any_ranks_learn_as_serial_does(ranks):
    problem = ratings()
    (want,) = sim.run(lambda comm: trained(comm, problem, serial), 1)
    split = with_products(problem)
    own = {"allreduce": ALLREDUCE["ring"], "batch": MINIBATCH}
    found = sim.run(lambda comm: trained(comm, split, operation, **own), ranks)
    for losses, _, _ in found:
        np.testing.assert_allclose(losses, want[0], rtol=1e-5)
    assert want[0][-1] < 0.9 * want[0][0]
    np.testing.assert_allclose(found[0][1], want[1], rtol=1e-4, atol=1e-5)
    assert all(one[1] is None for one in found[1:])
    # the products and the norm
    words = sum(one[2] for one in found)
    assert words == 2 * (ranks - 1) * (MINIBATCH + 1)
