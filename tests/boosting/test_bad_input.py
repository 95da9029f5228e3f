"""Bad input is one clear line, equal on all ranks."""

import re

import numpy as np
import pytest
from scipy import sparse

from dml import sim
from dml.boosting import Data, Settings, train
from dml.boosting.settings import MAX_ROWS, check_sizes
from dml.types import BadInput
from tests.boosting.tables import blocks, settings, table

SETTINGS = [
    ({"loss": "hinge"}, "a loss of squared, logistic, softmax, got 'hinge'"),
    ({"bins": 256}, "bins from 2 to 255, got 256"),
    ({"rate": float("nan")}, "rate from .* got nan"),
    ({"row_share": 0}, "row_share from .* got 0"),
    ({"leaves": 1}, "leaves from 2"),
    ({"loss": "softmax"}, "at least 2 classes, got 1; pass classes=2"),
    ({"monotone": (2, 0)}, "directions -1, 0 or 1"),
    ({"monotone": (1, 0), "categories": (0,)}, "monotone columns .* column 0 as both"),
    ({"monotone": (1,)}, "7 directions in monotone, got 1"),
    ({"categories": (9,)}, "columns 0 to 6, got 9"),
    ({"split": "diagonal"}, "a split rows, columns, vote or RxC .* 'diagonal'"),
    ({"split": "2x2"}, "4 ranks for the split 2x2, got 1"),
]


@pytest.mark.parametrize("changes, message", SETTINGS)
def test_a_wrong_setting_is_refused(changes, message):
    x, y = table(rows=20)
    with pytest.raises(BadInput, match=message):
        train(None, Data(x, y), Settings(**changes))


def spoiled(kind):
    """Return a table whose last row, on the last rank, is wrong."""
    x, y = table("logistic", 30)
    weights = np.ones(30)
    given = settings("logistic", categories=(3,))
    if kind == "infinite feature":
        x[-1, 0] = np.inf
    elif kind == "infinite target":
        y[-1] = np.nan
        given = settings("squared")
    elif kind == "class":
        y[-1] = 2
    elif kind == "weight":
        weights[-1] = 0
    elif kind == "negative weight":
        weights[-1] = -1
    elif kind == "category":
        x[-1, 3] = 1.5
    return x, y, weights, given


@pytest.mark.parametrize(
    "kind, message",
    [
        ("infinite feature", "finite or missing features, got an infinite one"),
        ("infinite target", "targets of at most 1e100, got nan"),
        ("class", "targets 0 to 1, got 2; number the classes"),
        ("weight", "weights above 0, got 0; remove rows of weight 0"),
        ("negative weight", "weights above 0, got -1"),
        ("category", "categories 0, 1, 2, … in column 3, got another number"),
    ],
)
def test_wrong_data_of_one_rank_are_refused_on_all_ranks(kind, message):
    x, y, weights, given = spoiled(kind)

    def program(comm):
        own = blocks(comm.rank, 3, "rows", x, y, weights)
        with pytest.raises(BadInput, match=message) as error:
            train(comm, own, given)
        return str(error.value)

    texts = set(sim.run(program, 3))
    assert len(texts) == 1
    assert re.match("rank 2: expected .*; ", texts.pop())


def test_other_kinds_of_features_are_refused():
    with pytest.raises(BadInput, match="NumPy array or SciPy matrix x, got a list;"):
        train(None, Data([[1.0]], np.zeros(1)), settings())
    x = sparse.csr_matrix(np.array([[np.inf, 0]]))
    with pytest.raises(BadInput, match="finite or missing features"):
        train(None, Data(x, np.zeros(1)), settings())
    x = sparse.csr_matrix(np.eye(3, dtype=np.int64))
    with pytest.raises(BadInput, match="float32 or float64, got int64 of shape"):
        train(None, Data(x, np.zeros(3)), settings())


def test_blocks_that_make_no_grid_are_refused():
    x, y = table(rows=30)

    def program(comm):
        own = Data(x[: 10 + comm.rank, :3], y[: 10 + comm.rank])
        with pytest.raises(BadInput, match="expected equal rows on all ranks of a row"):
            train(comm, own, settings(split="columns"))

    sim.run(program, 2)


def test_more_categories_than_bins_are_refused():
    x = np.arange(300.0)[:, None]
    with pytest.raises(BadInput, match="at most 255 categories in a column, got more"):
        train(None, Data(x, x[:, 0]), Settings(categories=(0,)))


def test_sizes_whose_sums_could_overflow_are_refused():
    check_sizes(MAX_ROWS, 1, Settings())
    with pytest.raises(BadInput, match=r"1 to 2\^32 rows, .* got 4294967297"):
        check_sizes(MAX_ROWS + 1, 1, Settings())
    assert MAX_ROWS * 2**30 < 2**63
    with pytest.raises(BadInput, match=r"1 to 2\^32 rows, .* got 0; pass rows"):
        train(None, Data(np.zeros((0, 2)), np.zeros(0)), Settings())
    with pytest.raises(BadInput, match="at least one column, got none"):
        train(None, Data(np.zeros((2, 0)), np.zeros(2)), Settings())


@pytest.mark.parametrize("loss", ("squared", "logistic"))
def test_one_class_and_constant_or_missing_columns_train_a_constant(loss):
    x = np.full((50, 3), np.nan)
    x[:, 1] = 4
    for y in (np.zeros(50), np.ones(50)):
        model = train(None, Data(x, y), settings(loss)).model
        assert [len(tree.value) for tree in model.trees] == [1, 1]
        scores = model.scores(x[:1])
        assert scores == pytest.approx(model.start[0], abs=1e-6)
