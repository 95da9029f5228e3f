"""The sum tree, by exhaustive draws and against cumulative sums."""

import numpy as np
import pytest

from dml.data.replay.sum_tree import LARGEST, WIDTH, SumTree, stratified_draws
from dml.types import BadInput

SIZES = (1, 2, WIDTH - 1, WIDTH, WIDTH + 1, 3 * WIDTH, WIDTH**2, WIDTH**2 + 1, 1000)


def filled(size, random, largest=7):
    """Return a tree with random weights, of which many are 0."""
    tree = SumTree(size)
    for _ in range(5):
        indices = random.integers(0, size, 2 * size)
        tree.update(indices, random.integers(0, largest, 2 * size))
    return tree


@pytest.mark.parametrize("size", SIZES)
def test_each_leaf_is_found_by_as_many_of_all_draws_as_its_weight(size):
    tree = filled(size, np.random.default_rng(size))
    found = tree.find(np.arange(tree.total))
    assert np.array_equal(np.bincount(found, minlength=size), tree.weights)
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_after_random_updates_each_node_is_the_sum_of_its_children(size):
    random = np.random.default_rng(size)
    tree = filled(size, random, 2**40)
    expected = np.zeros(size, np.int64)
    for _ in range(30):
        indices = random.integers(0, size, 9)
        weights = random.integers(0, 2**40, 9)
        tree.update(indices, weights)
        for index, weight in zip(indices, weights, strict=True):
            expected[index] = weight  # of equal indices the last one counts
    touched = np.isin(np.arange(size), indices)
    assert np.array_equal(tree.weights[touched], expected[touched])
    assert tree.total == sum(tree.weights.tolist())
    for low, high in zip(tree.starts[:-1], tree.starts[1:], strict=True):
        children = tree.nodes[low:high].reshape(-1, WIDTH).sum(1)
        assert np.array_equal(tree.nodes[high : high + len(children)], children)


def test_the_total_of_the_largest_weights_is_exact():
    tree = SumTree(2**22)
    assert 2**22 * tree.largest == LARGEST
    tree.update(np.arange(2**22), np.full(2**22, tree.largest))
    assert tree.total == LARGEST
    assert tree.find(np.array([0, LARGEST - 1])).tolist() == [0, 2**22 - 1]


def test_a_leaf_of_weight_0_is_never_found():
    tree = SumTree(40)
    tree.update(np.array([3, 17, 39]), np.array([1, 5, 2]))
    tree.update(np.array([17]), np.array([0]))
    assert tree.find(np.arange(3)).tolist() == [3, 39, 39]


def test_draws_and_weights_out_of_range_are_refused():
    tree = SumTree(4)
    tree.update(np.array([0, 3]), np.array([2, 2]))
    for call in (
        lambda: tree.find(np.array([4])),
        lambda: tree.find(np.array([-1])),
        lambda: tree.update(np.array([4]), np.array([1])),
        lambda: tree.update(np.array([0]), np.array([-1])),
        lambda: SumTree(4).find(np.array([0])),
    ):
        with pytest.raises(ValueError, match=r"expected .* from 0 to"):
            call()
    with pytest.raises(BadInput, match="expected 1 to 4194304 leaves"):
        SumTree(2**22 + 1)


@pytest.mark.parametrize("total", [1, 5, 8, 64, 1001, 2**62 - 3])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_stratified_draws_have_one_integer_of_each_part(total, count):
    bounds = [total * k // count for k in range(count + 1)]
    low, high = np.array(bounds[:-1]), np.array(bounds[1:])
    random = np.random.default_rng(1)
    for _ in range(5):
        uniforms = random.integers(0, 2**64, count, dtype=np.uint64)
        draws = stratified_draws(total, uniforms)
        assert (draws >= low).all() and (draws < np.maximum(high, low + 1)).all()
        assert draws.max() < total


def test_stratified_draws_reach_all_integers_equally_often():
    uniforms = np.repeat(np.arange(8, dtype=np.uint64)[:, None], 3, 1)
    draws = np.concatenate([stratified_draws(24, row) for row in uniforms])
    assert sorted(draws.tolist()) == list(range(24))
