"""The fused update of Adam: optax's rule, and the same bits for every chunk."""

import numpy as np
import optax
import pytest

from dml.update.fused_adam import STREAMS, FusedAdam, moments

LENGTH = 1003


def values(seed):
    return np.random.default_rng(seed).standard_normal(LENGTH).astype(np.float32)


def trained(chunk=0, terms=3, outputs=2):
    """Return outputs after 3 updates, by passes over chunks if `chunk` is not 0."""
    adam = FusedAdam(LENGTH, rate=0.01)
    arrays = [values(9), *np.zeros((outputs - 1, LENGTH), np.float32)]
    for number in range(3):
        adam.begin(terms)
        grads = [values([number, rank]) for rank in range(terms)]
        if chunk:
            adam.update_by_chunks(0, grads, arrays, chunk)
        else:
            adam.update(0, grads, arrays)
    return arrays


def test_an_update_is_that_of_optax_up_to_rounding():
    optimizer, expected = optax.adam(0.01), values(9)
    state = optimizer.init(expected)
    for number in range(3):
        mean = sum(values([number, rank]) for rank in range(3)) / np.float32(3)
        updates, state = optimizer.update(mean, state, expected)
        expected = optax.apply_updates(expected, updates)
    # optax rounds 1 - 0.999^t to float32: an error of 6e-5 in the first step of 0.01
    np.testing.assert_allclose(trained()[0], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("chunk", [4, 400, 4 * LENGTH, 1 << 20])
def test_passes_over_chunks_have_the_bits_of_one_loop_in_all_outputs(chunk):
    results = {out.tobytes() for out in (*trained(chunk), *trained())}
    assert len(results) == 1


@pytest.mark.parametrize("terms, outputs", [(1, 1), (STREAMS + 1, 1), (1, STREAMS + 1)])
def test_any_number_of_terms_and_outputs_has_the_bits_of_passes(terms, outputs):
    loops, passes = trained(0, terms, outputs), trained(400, terms, outputs)
    assert {out.tobytes() for out in loops} == {passes[0].tobytes()}


def test_parts_of_an_update_have_the_bits_of_one_update():
    adam, params = FusedAdam(LENGTH, rate=0.01), values(9)
    for number in range(3):
        adam.begin(3)
        for start in range(0, LENGTH, 100):
            part = slice(start, start + 100)
            grads = [values([number, rank])[part] for rank in range(3)]
            adam.update(start, grads, [params[part]])
    assert params.tobytes() == trained()[0].tobytes()


@pytest.mark.parametrize("length", [1, 1003, 1024, 1 << 16])
def test_moments_begin_at_a_quarter_and_at_half_of_a_page(length):
    vectors = moments(length)
    assert [v.ctypes.data % 4096 for v in vectors] == [1024, 2048]
    assert [len(v) for v in vectors] == [length, length]
    assert not np.shares_memory(*vectors)


def test_terms_are_added_in_their_order():
    big = np.full(LENGTH, 1e8, np.float32)
    terms = [big, np.ones(LENGTH, np.float32), -big, np.full(LENGTH, 3, np.float32)]
    adam = FusedAdam(LENGTH)
    adam.begin(4)
    adam.update(0, terms, [np.zeros(LENGTH, np.float32)])
    mean = np.float32(0.75)  # (1e8 + 1) - 1e8 + 3 is 3 in float32, backwards it is 1
    assert (adam.first == (1 - np.float32(0.9)) * mean).all()
