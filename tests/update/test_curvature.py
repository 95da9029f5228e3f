"""Inverses of the curvature, and preconditioned gradients."""

import numpy as np
import pytest

from dml.update.curvature import (
    inverses,
    pack_triangle,
    precondition,
    unpack_triangle,
)


def second_moment(order, rows=50, seed=0):
    values = np.random.default_rng(seed).standard_normal((rows, order))
    return (values.T @ values / rows).astype(np.float32)


@pytest.mark.parametrize("damping", [1e-2, 1.0])
def test_a_preconditioned_gradient_solves_the_system_of_the_curvature(damping):
    first, second = second_moment(5), 0.1 * second_moment(3, seed=1)
    gradient = np.random.default_rng(2).standard_normal((5, 3)).astype(np.float32)
    scale = np.sqrt(np.trace(first) / 5 / (np.trace(second) / 3))
    root = np.sqrt(damping)
    curvature = np.kron(
        first + root * scale * np.eye(5), second + root / scale * np.eye(3)
    )
    expected = np.linalg.solve(curvature, gradient.reshape(-1)).reshape(5, 3)
    own = precondition(inverses((first, second), np.float32(damping)), gradient)
    np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-4)


def test_a_curvature_of_zeros_has_finite_inverses():
    zeros = np.zeros((4, 4), np.float32), second_moment(3)
    for pair in (zeros, zeros[::-1]):
        results = inverses(pair, np.float32(1e-2))
        assert all(np.isfinite(result).all() for result in results)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_a_triangle_is_packed_by_rows_and_unpacked_to_the_symmetric_matrix(order):
    matrix = second_moment(order)
    buffer = np.empty(order * (order + 1) // 2, np.float32)
    pack_triangle(matrix, buffer, 2.0)
    assert np.array_equal(buffer, 2 * matrix[np.tril_indices(order)])
    assert np.array_equal(unpack_triangle(buffer, order), 2 * matrix)
