"""Words on the wire, counted, are those that the docstrings promise."""

import numpy as np
import pytest

from dml import sim
from dml.strategies.glove.tiling import tiled
from dml.update.rows import width
from dml.wire.plans.schedules import SCHEDULES, words_sent
from tests.strategies.glove import lattice
from tests.strategies.glove.lattice import BLOCKS, DIM, HOSTS, WORDS, corpus, order

BATCH = 400
each_size = pytest.mark.parametrize("size", (1, 2, 3, 8))


def sent(size, how, network=None, **k):
    """Return the words that all ranks sent in each of three epochs."""
    ended = lattice.on_ranks(size, how, network, batch=BATCH, **k)
    return np.array([one.words for one in ended]).sum(0).tolist()


def allreduced(name, size, length):
    """Return the words of an all-reduce, of all ranks."""
    return words_sent(SCHEDULES[name](size, length))


@each_size
def test_rotation_sends_each_context_row_once_to_every_rank_and_hogwild_losses(size):
    losses = allreduced("tree", size, BLOCKS**2)  # float64, which hogwild's words are
    rows = size * WORDS * width(DIM) * (size > 1)
    for network in (None, HOSTS):
        assert sent(size, "travel", network) == [rows + 2 * losses] * 3
    assert sent(size, "stay") == [2 * losses] * 3
    assert sent(size, "hogwild") == [losses] * 3


@each_size
def test_minibatches_send_products_or_the_gradient_of_all_or_of_touched_rows(size):
    lengths = 4 * (size - 1) * size * 2  # an int64 a rank, of each minibatch
    loss = 2 * allreduced("tree", size, 1)  # a float64
    for name in ("ring", "tree", "halving_doubling"):
        full, ragged = (allreduced(name, size, n) for n in (400, 300))
        words = sent(size, "operation", allreduce=name)
        assert words == [3 * full + ragged] * 3
        table = 4 * allreduced(name, size, 2 * WORDS * (DIM + 1))
        words = sent(size, "dense", allreduce=name)
        assert words == [table + lengths + loss] * 3
    for tables in (1, 2):
        # a row's number, its vector, its bias
        rows = (size - 1) * touched(tables, size) * (DIM + 2)
        words = sent(size, "sparse", tables=tables)
        assert words == [rows + lengths + loss] * 3


def touched(tables, size):
    """Count the rows that each shard of each minibatch touches."""

    def program(comm):
        return tiled(comm, corpus(), WORDS, order(tables))[0]

    (found,) = sim.run(program, 1)
    tile = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    words = found.grid.words[tile] + found.words
    contexts = found.grid.contexts[tile] + found.contexts
    count = 0
    for start in range(0, len(words), BATCH):
        here = np.arange(start, min(start + BATCH, len(words)))
        for shard in np.array_split(here, size):
            count += len(set(words[shard]) | set(contexts[shard]))
    return count
