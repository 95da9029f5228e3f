"""Tables by name: sizes, classes and seeds of generators, and division."""

import numpy as np
import pytest

from dml.data.tables.generated import higgs, zipf
from dml.data.tables.named import TABLES, diamond_lines, divided, table

SIZES = {"friedman": 10, "higgs": 28, "covertype": 54, "iris": 4, "wine": 13}


@pytest.mark.parametrize("name", SIZES)
def test_a_table_has_its_columns_and_classes(name):
    made = table(name, 120, 0)
    assert made.x.shape == (120, SIZES[name]) and made.x.dtype == np.float32
    assert len(made.names) == SIZES[name]
    if made.classes:
        assert set(made.y.tolist()) <= set(range(made.classes))
    training, held_out = divided(made)
    assert len(training.y) == 96 and len(held_out.y) == 24
    whole = np.concatenate([held_out.x, training.x])
    np.testing.assert_array_equal(whole, made.x)


@pytest.mark.parametrize("name", ("friedman", "higgs", "covertype"))
def test_a_generated_table_is_that_of_its_seed(name):
    one, same, other = (table(name, 50, seed).x for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_share_of_the_positives_is_that_given():
    assert higgs(5000, 0, 0.01)[1].sum() == 50


def test_the_columns_of_a_sparse_table_do_not_depend_on_vector_libraries():
    """Powers of Python's floats have the same columns as those of arrays."""
    rows, columns, nonzeros = 100, 10**6, 50
    drawn = np.random.default_rng([0, 4]).random(rows * nonzeros, np.float32)
    places = [int((columns + 1.0) ** u) - 1 for u in drawn.tolist()]
    x, _ = zipf(rows, columns, nonzeros, 0)
    for row in range(rows):
        found = x.indices[x.indptr[row] : x.indptr[row + 1]].tolist()
        assert found == sorted({*places[row * nonzeros : (row + 1) * nonzeros]})


def test_every_name_is_of_a_function():
    assert {*SIZES, "diamonds", "digits", "diabetes", "breast_cancer"} == set(TABLES)


def test_diamonds_are_read_from_a_pickled_table(monkeypatch):
    from dml.data.tables import named

    given = {name: np.array([1.5, 2.0]) for name in ("carat", "depth", "table")}
    given |= {name: np.array([0.0, 4.0]) for name in "xyz"}
    given |= {"cut": ["Fair", "Ideal"], "color": ["J", "D"], "clarity": ["I1", "IF"]}
    given["price"] = np.array([326, 9])
    monkeypatch.setattr(named, "columns", lambda file, names: [given[n] for n in names])
    lines = "".join(diamond_lines(None)).splitlines()
    assert lines[0] == "carat,depth,table,x,y,z,cut,color,clarity,price"
    assert lines[1:] == ["1.5,1.5,1.5,0,0,0,0,0,0,326", "2,2,2,4,4,4,4,6,7,9"]
