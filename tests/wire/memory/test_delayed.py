"""The delayed kernel against an oracle that keeps every table there ever was."""

import numpy as np
import pytest

from dml.data.sparse.svmlight import generate
from dml.models.sparse import svm
from dml.wire.memory.delayed import delayed_loop, delayed_table
from dml.wire.memory.state import EpochSettings
from tests.strategies.shared import quadratic

EDGES, ROWS, MOST = 60, 12, 9
RATE, MU = 0.3, 0.01


def hinge(tables, late, data, e, t):
    """The gradient of one document's stored weights, by numpy alone."""
    at = slice(*data.edges.starts[e : e + 2])
    rows, x, y = data.edges.rows[at], data.values[at], data.labels[e]
    stale = np.array([tables[-1 - d][r] for r, d in zip(rows, late, strict=True)])
    if y * (1 - RATE * MU) ** t * (x @ stale) >= 1:
        return rows, None
    return rows, -y * x / (1 - RATE * MU) ** (t + 1)


def pull(tables, late, data, e, t):
    at = slice(*data.edges.starts[e : e + 2])
    rows = data.edges.rows[at]
    stale = np.array([tables[-1 - d][r] for r, d in zip(rows, late, strict=True)])
    return rows, stale - data.targets_NxD[at]


def documents():
    return svm.documents(generate(EDGES, ROWS, 3, seed=4), MU, np.float64)


PROBLEMS = {
    "svm": (svm, documents, (ROWS,), hinge, -np.inf),
    "quadratic": (
        *(quadratic, lambda: quadratic.pulls(EDGES, ROWS, 4), (ROWS, 4), pull, 0.0),
    ),
}
DELAYS = {
    "none": lambda rng, lengths: np.zeros(lengths.sum(), int),
    "constant": lambda rng, lengths: np.full(lengths.sum(), 5),
    "the longest": lambda rng, lengths: np.full(lengths.sum(), MOST),
    "an update's": lambda rng, lengths: np.repeat(
        rng.integers(0, MOST + 1, EDGES), lengths
    ),
    "a row's": lambda rng, lengths: rng.integers(0, MOST + 1, lengths.sum()),
}


def oracle(problem, data, order, delays, clock, momentum, tables):
    """Go on from the last of tables, adding one for each update."""
    _, _, _, gradient, least = PROBLEMS[problem]
    velocity = np.zeros_like(tables[0])
    reads = 0
    for t, e in enumerate(order):
        count = data.edges.starts[e + 1] - data.edges.starts[e]
        late = np.minimum(delays[reads : reads + count], clock + t)
        reads += count
        rows, grads = gradient(tables, late, data, e, t)
        table = tables[-1].copy()
        if grads is not None:
            velocity[rows] = momentum * velocity[rows] + grads
            table[rows] = np.maximum(table[rows] - RATE * velocity[rows], least)
        tables.append(table)
    return tables


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("late", DELAYS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_row_is_read_as_it_was(problem, late, momentum):
    model, make, shape, _, _ = PROBLEMS[problem]
    data, rng = model.with_rate(make(), RATE), np.random.default_rng(1)
    order = rng.permutation(EDGES)
    delays = DELAYS[late](rng, np.diff(data.edges.starts)[order])
    start = rng.uniform(0, 1, shape)
    mine = delayed_table(start.copy(), data.edges, MOST, bool(momentum))
    pace = EpochSettings(np.float64(RATE), np.float64(momentum), 0)
    lengths = np.diff(data.edges.starts)[order]
    past = np.minimum(delays, np.repeat(np.arange(EDGES), lengths))
    # reads of a second call reach back into what the first one has done
    middle = EDGES // 2 if problem == "quadratic" and not momentum else EDGES
    reads, tables = lengths[:middle].sum(), [start]
    for edges, at in (
        (slice(middle), slice(reads)),
        (slice(middle, None), slice(reads, None)),
    ):
        clock = edges.start or 0
        delayed_loop(model)(mine, data, order[edges], past[at], clock, pace)
        tables = oracle(
            problem, data, order[edges], delays[at], clock, momentum, tables
        )
    np.testing.assert_allclose(mine.table, tables[-1], rtol=0, atol=1e-12)
    assert not np.allclose(mine.table, start, atol=0.1)


def test_who_projects_does_so_from_where_the_row_is():
    """Late pulls down would carry rows below 0, if they counted from late rows."""
    data = quadratic.pulls(EDGES, 4, 4)
    data = data._replace(targets_NxD=data.targets_NxD - 2)
    mine = delayed_table(np.ones((4, 4)), data.edges, MOST, False)
    delays = np.minimum(np.repeat(np.arange(EDGES), 2), MOST)
    pace = EpochSettings(np.float64(RATE), np.float64(0), 0)
    run = delayed_loop(quadratic)
    for t in range(EDGES):
        run(mine, data, np.array([t]), delays[2 * t : 2 * t + 2], t, pace)
        assert mine.table.min() >= 0
    assert mine.table.max() == 0
