"""The delayed kernel against an oracle that keeps every table there ever was."""

import numpy as np
import pytest

from dml.data.sparse.graphs import generate as graph
from dml.data.sparse.svmlight import generate
from dml.models.sparse import cuts, svm
from dml.wire.memory.delayed import delayed_loop, delayed_table
from dml.wire.memory.state import EpochSettings

MOST = 9
RATE, MU = 0.3, 0.01


def documents():
    return svm.documents(generate(60, 12, 3, seed=4), MU, np.float64), (12,)


def parted():
    """Return edges of one row or two, whose rows are projected onto the simplex."""
    return cuts.cuts(graph((4, 3), 3, 0, 1.0), 0, np.float64), (12, 3)


PROBLEMS = {"svm": (svm, documents), "cuts": (cuts, parted)}
DELAYS = {
    "none": lambda rng, lengths: np.zeros(lengths.sum(), int),
    "constant": lambda rng, lengths: np.full(lengths.sum(), 5),
    "the longest": lambda rng, lengths: np.full(lengths.sum(), MOST),
    "an update's": lambda rng, lengths: np.repeat(
        rng.integers(0, MOST + 1, len(lengths)), lengths
    ),
    "a row's": lambda rng, lengths: rng.integers(0, MOST + 1, lengths.sum()),
}


def oracle(model, data, order, delays, clock, momentum, tables):
    """Go on from the last of tables, adding one for each update."""
    velocity = np.zeros_like(tables[0])
    reads = 0
    for t, e in enumerate(order):
        rows = data.edges.rows[slice(*data.edges.starts[e : e + 2])].astype(int)
        late = np.minimum(delays[reads : reads + len(rows)], clock + t)
        reads += len(rows)
        stale, table = tables[-1].copy(), tables[-1].copy()
        for row, delay in zip(rows, late, strict=True):
            stale[row] = tables[-1 - delay][row]
        grads = np.empty((len(rows), *table.shape[1:]))
        _, moves = model.gradient(stale, data, e, t, grads)
        for s, row in enumerate(rows if moves else ()):
            velocity[row] = grads[s] = momentum * velocity[row] + grads[s]
            model.move(table, row, grads, s, RATE)  # from where the row is now
            table[row] += grads[s]
        tables.append(table)
    return tables


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("late", DELAYS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_row_is_read_as_it_was(problem, late, momentum):
    model, make = PROBLEMS[problem]
    data, shape = make()
    data, rng = model.with_rate(data, RATE), np.random.default_rng(1)
    lengths = np.diff(data.edges.starts)
    order = rng.permutation(len(lengths))
    lengths = lengths[order]
    delays = DELAYS[late](rng, lengths)
    start = rng.uniform(0, 1, shape)
    mine = delayed_table(start.copy(), data.edges, MOST, bool(momentum))
    pace = EpochSettings(np.float64(RATE), np.float64(momentum), 0)
    past = np.minimum(delays, np.repeat(np.arange(len(order)), lengths))
    # reads of a second call reach back into what the first one has done
    middle = len(order) // 2 if problem == "cuts" and not momentum else len(order)
    reads, tables = lengths[:middle].sum(), [start]
    for edges, at in (
        (slice(middle), slice(reads)),
        (slice(middle, None), slice(reads, None)),
    ):
        clock = edges.start or 0
        delayed_loop(model)(mine, data, order[edges], past[at], clock, pace)
        tables = oracle(model, data, order[edges], delays[at], clock, momentum, tables)
    np.testing.assert_allclose(mine.table, tables[-1], rtol=0, atol=1e-12)
    assert not np.allclose(mine.table, start, atol=0.1)
