"""Optax on a flat vector, and on parts of it, against optax on the pytree."""

import jax
import numpy as np
import pytest

from dml.types import BadInput
from dml.update.dense import apply, make
from dml.update.flat import ELEMENTWISE, elementwise, flat

SHAPES = {"a": (3, 5), "b": (), "c": {"d": (2, 3, 7)}}
LENGTH = 15 + 1 + 42
CUTS = [slice(0, 22), slice(22, 40), slice(40, LENGTH)]  # two lengths: two compilations


def draw(seed, scale=1.0):
    """Make a ragged pytree."""
    rng = np.random.default_rng(seed)

    def one(shape):
        return (scale * rng.normal(size=shape)).astype(np.float32)

    return jax.tree.map(one, SHAPES, is_leaf=lambda shape: isinstance(shape, tuple))


def flattened(tree):
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)[:, None]


def aligned(length):
    """Memory that JAX takes as it is, without a copy."""
    raw = np.empty(4 * length + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * length].view(np.float32)[:, None]


def gradients(steps=4):
    return [draw(seed, 10.0 ** (seed - 3)) for seed in range(1, steps + 1)]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_vector_and_its_parts_move_as_the_pytree_does_bit_for_bit(name):
    optimizer, params = elementwise(name, 0.05), draw(0)
    start, state = flattened(params), optimizer.init(draw(0))
    shard, parts = flat(optimizer, start), [flat(optimizer, start[cut]) for cut in CUTS]
    for grads in gradients():
        params, state = apply(optimizer, grads, state, params)
        shard.update(slice(0, LENGTH), flattened(grads))
        assert shard.values.tobytes() == flattened(params).tobytes()
        for part, cut in zip(parts, CUTS, strict=True):
            part.update(slice(None), flattened(grads)[cut])
        joined = np.concatenate([part.values for part in parts])
        assert joined.tobytes() == flattened(params).tobytes()
    assert abs(shard.values - start).min() > 0  # all have moved


def test_what_needs_whole_layers_would_differ_and_is_refused():
    optimizer = make("lars", 0.05)
    one, part = flat(optimizer, np.ones((4, 1))), flat(optimizer, np.ones((2, 1)))
    one.update(slice(None), np.float32([[1], [2], [3], [4]]))
    part.update(slice(None), np.float32([[1], [2]]))
    assert part.values.tobytes() != one.values[:2].tobytes()
    for name in ("lars", "lamb"):
        with pytest.raises(BadInput, match=f"sgd, .* got '{name}', which needs full"):
            elementwise(name, 0.05)
    with pytest.raises(BadInput, match="got 'sdg'; pass --opt"):
        elementwise("sdg", 0.05)


def test_the_gradients_and_the_values_of_before_stay_as_they_were():
    start = np.ones((1000, 1), np.float32)
    shard, grads = flat(elementwise("adam", 0.1), start), aligned(1000)
    grads[:] = 2
    before = [shard.values]
    for _ in range(3):
        shard.update(slice(None), grads)
        assert isinstance(shard.values, np.ndarray)
        before.append(shard.values)
    assert (grads == 2).all() and (start == 1).all()
    assert len({values.tobytes() for values in before}) == 4
    assert [round(float(values[0, 0]), 1) for values in before] == [1, 0.9, 0.8, 0.7]


def test_the_server_may_put_an_equal_copy_in_the_place_of_values():
    optimizer, grads = elementwise("momentum", 0.1), np.full((5, 2), 3, np.float32)
    kept, replaced = (flat(optimizer, np.ones((5, 2))) for _ in range(2))
    for _ in range(3):
        kept.update(slice(None), grads)
        replaced.values = replaced.values.copy()
        replaced.update(slice(None), grads)
        assert kept.values.tobytes() == replaced.values.tobytes()


PARTS = (slice(1, 4), slice(0, 3), slice(3, None, -1), np.arange(3), np.arange(4)[::-1])


@pytest.mark.parametrize("at", PARTS)
def test_a_part_of_the_rows_or_another_order_is_bad_input(at):
    shard = flat(elementwise("sgd", 0.1), np.ones((4, 1)))
    with pytest.raises(BadInput, match="all of 4 rows in order, got [34]; push full"):
        shard.update(at, np.ones((4, 1), np.float32))
    assert (shard.values == 1).all()


def test_all_rows_may_come_as_numbers_and_none_are_no_step():
    one, other = (flat(elementwise("adam", 0.1), np.ones((4, 1))) for _ in range(2))
    for _ in range(2):
        one.update(slice(0, 4), np.ones((4, 1), np.float32))
        other.update(np.arange(4, dtype=np.int32), np.ones((4, 1), np.float32))
        for nothing in (slice(0, 0), np.array([], np.int32)):
            other.update(nothing, np.empty((0, 1), np.float32))
    assert one.values.tobytes() == other.values.tobytes()


def test_gradients_of_another_shape_are_bad_input():
    shard = flat(elementwise("sgd", 0.1), np.ones((4, 1)))
    with pytest.raises(BadInput, match=r"expected .*\(4, 1\), got \(1, 1\); push"):
        shard.update(slice(None), np.ones((1, 1), np.float32))
