"""Optax on a flat vector, and on parts of it, against optax on the pytree."""

import jax
import numpy as np
import pytest

from dml.types import BadInput
from dml.update.dense import apply, make
from dml.update.flat import ELEMENTWISE, elementwise, flat

SHAPES = {"a": (3, 5), "b": (), "c": {"d": (2, 3, 7)}}
LENGTH = 15 + 1 + 42
CUTS = [slice(0, 29), slice(29, LENGTH)]  # one length: one compilation


def draw(seed, scale=1.0):
    """Make a ragged pytree."""
    rng = np.random.default_rng(seed)

    def one(shape):
        return (scale * rng.normal(size=shape)).astype(np.float32)

    return jax.tree.map(one, SHAPES, is_leaf=lambda shape: isinstance(shape, tuple))


def flattened(tree):
    leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves)[:, None]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_vector_and_its_parts_move_as_the_pytree_does_bit_for_bit(name):
    optimizer, params = elementwise(name, 0.05), draw(0)
    start, state = flattened(params), optimizer.init(draw(0))
    shard, parts = flat(optimizer, start), [flat(optimizer, start[cut]) for cut in CUTS]
    by_numbers = flat(optimizer, start)
    for seed in range(1, 5):
        grads = draw(seed, 10.0 ** (seed - 3))
        flat_grads = flattened(grads)
        params, state = apply(optimizer, grads, state, params)
        shard.update(slice(0, LENGTH), flat_grads)
        by_numbers.update(np.arange(LENGTH, dtype=np.int32), flat_grads)
        for part, cut in zip(parts, CUTS, strict=True):
            part.update(slice(None), flat_grads[cut])
        for nothing in (slice(0, 0), np.array([], np.int32)):  # no step
            shard.update(nothing, np.empty((0, 1), np.float32))
        joined = np.concatenate([part.values for part in parts])
        for values in (shard.values, by_numbers.values, joined):
            assert values.tobytes() == flattened(params).tobytes()
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
    raw = np.empty(4 * 1000 + 64, np.uint8)
    begin = -raw.ctypes.data % 64  # memory that JAX takes as it is, without a copy
    grads = raw[begin : begin + 4 * 1000].view(np.float32)[:, None]
    grads[:] = 2
    start = np.ones((1000, 1), np.float32)
    shard = flat(elementwise("adam", 0.1), start)
    before = [shard.values]
    for _ in range(3):
        shard.update(slice(None), grads)
        assert isinstance(shard.values, np.ndarray)
        before.append(shard.values)
    assert (grads == 2).all() and (start == 1).all()
    assert [round(float(values[0, 0]), 1) for values in before] == [1, 0.9, 0.8, 0.7]


ORDER = "all of 4 rows in order, got [34]; push full"


@pytest.mark.parametrize(
    "at, rows, message",
    [
        (slice(1, 4), 4, ORDER),
        (slice(0, 3), 4, ORDER),
        (slice(3, None, -1), 4, ORDER),
        (np.arange(3), 4, ORDER),
        (np.arange(4)[::-1], 4, ORDER),
        (slice(None), 1, r"expected .*\(4, 1\), got \(1, 1\); push"),
    ],
)
def test_part_of_the_rows_another_order_or_shape_is_bad_input(at, rows, message):
    shard = flat(elementwise("sgd", 0.1), np.ones((4, 1)))
    with pytest.raises(BadInput, match=message):
        shard.update(at, np.ones((rows, 1), np.float32))
    assert (shard.values == 1).all()
