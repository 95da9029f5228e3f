"""Words on the wire, counted, are those that the docstrings promise."""

import numpy as np
import pytest

from dml import sim
from dml.strategies.glove.tiling import tiled
from dml.update.rows import width
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.schedules import words as words_of
from tests.strategies.glove.lattice import (
    BLOCKS,
    DIM,
    HOSTS,
    WORDS,
    corpus,
    on_ranks,
    order,
)


def sent(size, how, network=None, **k):
    """Return the words that all ranks sent in each of three epochs."""
    return np.array([one.words for one in on_ranks(size, how, network, **k)]).sum(0)


def allreduced(name, size, length):
    """Return the words of an all-reduce, of all ranks."""
    return words_of(SCHEDULES[name](size, length))


def reduced(size, count, itemsize=8):
    """Return the words of float32 of a tree's all-reduce of so many float64."""
    return allreduced("tree", size, count) * itemsize // 4


@pytest.mark.parametrize("size", (1, 2, 3, 8))
def test_rotation_sends_each_context_row_once_to_every_rank(size):
    n, losses = WORDS * width(DIM), reduced(size, BLOCKS**2)
    for network in (None, HOSTS):
        moved = sent(size, "travel", network)
        assert moved.tolist() == [size * n * (size > 1) + losses] * 3
    assert sent(size, "stay").tolist() == [losses] * 3


@pytest.mark.parametrize("size", (1, 2, 3, 8))
def test_hogwild_sends_losses_alone(size):
    cells = reduced(size, BLOCKS**2) // 2  # its words are those of float64
    assert sent(size, "hogwild").tolist() == [cells] * 3


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("name", ("ring", "tree", "halving_doubling"))
def test_operation_sends_products_alone(name, size):
    whole, ragged = (allreduced(name, size, n) for n in (400, 300))
    moved = sent(size, "operation", batch=400, allreduce=name)
    assert moved.tolist() == [3 * whole + ragged] * 3


def gathered_lengths(size):
    return (size - 1) * size * 2  # an int64 a rank


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("name", ("ring", "tree"))
def test_dense_sends_the_whole_gradient_each_minibatch(name, size):
    table = allreduced(name, size, 2 * WORDS * (DIM + 1))
    moved = sent(size, "dense", batch=400, allreduce=name)
    each = table + gathered_lengths(size)
    assert moved.tolist() == [4 * each + reduced(size, 1)] * 3


@pytest.mark.parametrize("tables", (1, 2))
@pytest.mark.parametrize("size", (1, 2, 3, 8))
def test_sparse_sends_the_rows_that_a_shard_touches_to_all_others(size, tables):
    records, batch = corpus(), 400

    def touched(comm):
        found, _ = tiled(comm, records, WORDS, order(tables))
        return rows_of(found, batch, size)

    rows = sim.run(touched, 1)[0]
    each = (size - 1) * rows * (DIM + 2)  # the row's number, its vector, its bias
    moved = sent(size, "sparse", batch=batch, tables=tables)
    minibatches = -(-len_of(records, tables) // batch)
    lengths = minibatches * gathered_lengths(size)
    assert moved.tolist() == [each + lengths + reduced(size, 1)] * 3


def len_of(records, tables):
    apart = records["word"] != records["context"]
    return len(records) if tables == 2 else int(apart.sum())


def rows_of(found, batch, size):
    """Count the rows that each shard of each minibatch touches."""
    tile = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    words = found.grid.words[tile] + found.words
    contexts = found.grid.contexts[tile] + found.contexts
    count = 0
    for start in range(0, len(words), batch):
        here = np.arange(start, min(start + batch, len(words)))
        for shard in np.array_split(here, size):
            count += len(set(words[shard]) | set(contexts[shard]))
    return count
