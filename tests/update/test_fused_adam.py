"""The fused update of Adam: optax's rule, and the same bits for every chunk."""

import numpy as np
import optax
import pytest

from dml.update.fused_adam import FusedAdam

LENGTH = 1003


def values(seed):
    return np.random.default_rng(seed).standard_normal(LENGTH).astype(np.float32)


def trained(chunk, updates=3):
    """Return parameters and their copy after updates by three terms."""
    adam = FusedAdam(LENGTH, rate=0.01, chunk=chunk)
    params, copy = values(9), np.zeros(LENGTH, np.float32)
    for number in range(updates):
        adam.begin(3)
        terms = [values([number, rank]) for rank in range(3)]
        adam.update(0, terms, [params, copy])
    return params, copy


def test_an_update_is_that_of_optax_up_to_rounding():
    optimizer, expected = optax.adam(0.01), values(9)
    state = optimizer.init(expected)
    for number in range(3):
        mean = sum(values([number, rank]) for rank in range(3)) / np.float32(3)
        updates, state = optimizer.update(mean, state, expected)
        expected = optax.apply_updates(expected, updates)
    # optax rounds 1 - 0.999^t to float32: an error of 6e-5 in the first step of 0.01
    np.testing.assert_allclose(trained(64)[0], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("chunk", [4, 400, 4 * LENGTH, 1 << 20])
def test_the_bits_do_not_depend_on_the_chunk_and_all_outputs_are_equal(chunk):
    params, copy = trained(chunk)
    assert params.tobytes() == copy.tobytes() == trained(0)[0].tobytes()


def test_terms_are_added_in_their_order():
    big = np.full(LENGTH, 1e8, np.float32)
    terms = [big, np.ones(LENGTH, np.float32), -big, np.full(LENGTH, 3, np.float32)]
    adam = FusedAdam(LENGTH, chunk=400)
    adam.begin(4)
    adam.update(0, terms, [np.zeros(LENGTH, np.float32)])
    mean = np.float32(0.75)  # (1e8 + 1) - 1e8 + 3 is 3 in float32, backwards it is 1
    assert (adam.first == (1 - np.float32(0.9)) * mean).all()
