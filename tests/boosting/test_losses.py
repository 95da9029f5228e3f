"""Losses: functions of additions and multiplications, and their derivatives."""

import numpy as np
import pytest

from dml.boosting import fixed, losses


def test_exp_and_log_are_exact_to_a_few_ulps():
    x = np.linspace(-690, 690, 4001)
    found = np.array([losses.exp(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-15)
    x = np.concatenate([np.exp(np.linspace(-600, 600, 999)), 1 + np.logspace(-9, -1)])
    found = np.array([losses.log(value) for value in x])
    np.testing.assert_allclose(found, np.log(x), rtol=1e-15)


def scores(outputs, rows=37):
    return np.random.default_rng(0).standard_normal((rows, outputs))


def row_losses(name, f, y):
    made = np.empty(len(y))
    losses.LOSSES[name](f, y, made)
    return made


@pytest.mark.parametrize(
    "name, outputs, factor", [("squared", 1, 2), ("logistic", 1, 1), ("softmax", 3, 1)]
)
def test_gradients_are_derivatives_of_the_losses(name, outputs, factor):
    f = scores(outputs)
    y = np.arange(len(f)) % max(outputs, 2).__float__()
    step = 1e-5
    given = f
    if name == "softmax":
        given = np.empty_like(f)
        losses.probabilities(f, given)
    for c in range(outputs):
        g, h = np.empty(len(y)), np.empty(len(y))
        losses.GRADIENTS[name](given, y, c, g, h)
        shift = np.zeros_like(f)
        shift[:, c] = step
        up, middle, down = (
            row_losses(name, each, y) for each in (f + shift, f, f - shift)
        )
        np.testing.assert_allclose(factor * g, (up - down) / (2 * step), atol=1e-8)
        second = (up - 2 * middle + down) / step**2
        scale = outputs / (outputs - 1) if name == "softmax" else 1
        np.testing.assert_allclose(factor * h, scale * second, atol=1e-4)


def test_the_bits_of_a_row_do_not_depend_on_its_neighbours():
    f = 5 * scores(1, 67)
    y = np.zeros(len(f))
    whole = row_losses("logistic", f, y)
    for begin in range(len(f)):
        part = row_losses("logistic", f[begin:], y[begin:])
        np.testing.assert_array_equal(part, whole[begin:])


def test_sums_in_fixed_point_do_not_depend_on_the_order():
    values = np.random.default_rng(0).standard_normal(1000) * np.logspace(-9, 3, 1000)
    total = fixed.total(None, values)
    assert total == fixed.total(None, values[::-1])
    rounding = len(values) * abs(values).max() / 2**30
    assert total == pytest.approx(values.sum(), abs=rounding)


@pytest.mark.parametrize("bound", (1e-250, 0.25, 1.0, 3.0, 2.0**40, 1e100))
def test_the_largest_number_has_at_most_thirty_bits(bound):
    e = fixed.exponent(bound)
    assert 2**29 < bound * 2.0**e <= 2**30
    assert 1e-300 * 2.0 ** fixed.exponent(1e-300) < 2**30


def test_packed_sums_of_the_most_rows_do_not_overflow():
    for sign in (1, -1):
        g, h = np.full(fixed.FLUSH, sign * 1.0), np.full(fixed.FLUSH, 1.0)
        fine, packed = np.empty(2 * len(g), np.int32), np.empty(len(g), np.int64)
        fixed.quantise(g, h, (2.0**30, 2.0**30), False, fine, packed)
        total = int(packed.sum())
        assert total >> 32 == sign * fixed.FLUSH * 2**17
        assert total & 0xFFFFFFFF == fixed.FLUSH * 2**17


def test_numbers_are_rounded_to_the_nearest_integer():
    g, h = np.array([-0.7, 0.2, 0.5]), np.array([0.3, 0.7, 0.95])
    fine, packed = np.empty(6, np.int32), np.empty(3, np.int64)
    scale = 2.0**14
    fixed.quantise(g * 8, h * 8, (scale, scale), False, fine, packed)
    want = np.floor(np.column_stack([g, h]) * 8 * scale + 0.5)
    np.testing.assert_array_equal(fine.reshape(3, 2), want)
    coarse = np.column_stack([packed >> 32, packed & 0xFFFFFFFF])
    np.testing.assert_array_equal(coarse, np.floor(want / 2**fixed.SHIFT + 0.5))
