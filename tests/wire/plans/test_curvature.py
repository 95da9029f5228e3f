"""Owners and gradient workers of K-FAC."""

import pytest

from dml.types import BadInput
from dml.wire.plans.curvature import Layer, grid, nbytes, words

LAYERS = [Layer(9, 4), Layer(5, 6), Layer(7, 2), Layer(3, 3), Layer(4, 8)]


@pytest.mark.parametrize("ranks", [1, 2, 6, 8])
def test_rows_divide_the_layers_and_fractions_exchange_memory_for_words(ranks):
    plans = [
        grid(LAYERS, ranks, columns / ranks)
        for columns in range(1, ranks + 1)
        if ranks % columns == 0
    ]
    assert len(plans) > 1 or ranks == 1
    triangles = sum(layer.triangles for layer in LAYERS)
    for plan in plans:
        in_rows = [n for row in range(plan.rows) for n in plan.row_layers(row)]
        assert in_rows == list(range(len(LAYERS)))
        assert plan.parts[-1].stop == triangles
        assert sum(plan.elements(row) for row in range(plan.rows)) == sum(
            layer.inputs * layer.outputs for layer in LAYERS
        )
        squares = sum(layer.squares for layer in LAYERS)
        total = sum(nbytes(plan, rank) for rank in range(ranks))
        assert total == 4 * ((1 + ranks) * triangles + plan.columns * squares)
    gradients = [words(plan).gradients for plan in plans]
    inverses = [words(plan).inverses for plan in plans]
    assert sorted(gradients, reverse=True) == gradients and gradients[-1] == 0
    assert sorted(inverses) == inverses and inverses[0] == 0
    assert {words(plan).curvature for plan in plans} == {(ranks - 1) * triangles}


def test_owners_are_balanced_by_the_operations_of_inverses():
    small, large = Layer(2, 2), Layer(90, 2)
    assert grid([large, small, small, small], 2, 1).owned == [range(1), range(1, 4)]


@pytest.mark.parametrize("fraction", [0.3, 0.75, 2.0, 0.01])
def test_a_fraction_that_does_not_divide_the_ranks_is_refused(fraction):
    with pytest.raises(BadInput, match="a fraction of 1/4, 2/4, 1 of 4 ranks"):
        grid(LAYERS, 4, fraction)
