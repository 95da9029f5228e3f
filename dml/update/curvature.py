"""K-FAC (Martens 2015): gradients times the inverse of the curvature.

    gradient_AxG  →  inverse_AxA · gradient_AxG · inverse_GxG

The curvature of a dense layer is A ⊗ G, two symmetric matrices (`models.curvature`).
Each function is compiled for the sizes of one layer, so that the bits of a layer do not
depend on other layers of the program.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numba import njit

from dml.types import BadInput
from dml.types.ranges import Every, Fraction, Number


class CurvatureRule(NamedTuple):
    """Settings of K-FAC.

    Attributes:
      damping: λ of A ⊗ G + λI, divided between both matrices (Martens 2015, 6.3).
      average: Weight of earlier curvature in the running average.
      curvature_every: Number of updates between two computations of the curvature.
      inverses_every: Number of updates between two computations of inverses; a
        multiple of `curvature_every`.
      limit: Largest squared norm of the preconditioned gradients in the metric of the
        damped curvature; longer ones are scaled down to it. 0: no limit.
    """

    damping: Number = 1e-2
    average: Fraction = 0.95
    curvature_every: Every = 1
    inverses_every: Every = 5
    limit: Number = 0.0


DEFAULT = CurvatureRule()


def checked(rule: CurvatureRule) -> CurvatureRule:
    """Return the rule; raise BadInput if an average or inverses would not change."""
    if rule.average == 1:
        raise BadInput(
            "expected a weight of earlier curvature from 0 to below 1, got "
            f"{rule.average:g}; pass --average=0.95"
        )
    if rule.inverses_every % rule.curvature_every:
        raise BadInput(
            f"expected --inverses_every as a multiple of {rule.curvature_every}, the "
            f"--curvature_every, got {rule.inverses_every}; pass "
            f"--inverses_every={rule.curvature_every} or a multiple"
        )
    return rule


@jax.jit
def inverses(curvature: tuple[Any, Any], damping: Any) -> tuple[Any, Any]:
    """Return the inverses of the damped A and G of a layer.

    (A + π√λ I) ⊗ (G + √λ/π I) is A ⊗ G + λI and two terms proportional to √λ. π² is
    the mean eigenvalue of A divided by that of G, which makes these terms equally
    large.

    Args:
      curvature: A and G.
      damping: λ.
    """
    first, second = curvature
    scale = jnp.sqrt(mean_eigenvalue(first) / mean_eigenvalue(second))
    root = jnp.sqrt(damping)
    return inverse(first, root * scale), inverse(second, root / scale)


def mean_eigenvalue(matrix: Any) -> Any:
    """Return the mean eigenvalue, or a small positive number for zeros."""
    tiny = jnp.finfo(matrix.dtype).tiny
    return jnp.maximum(jnp.trace(matrix) / len(matrix), jnp.sqrt(tiny))


def inverse(matrix: Any, added: Any) -> Any:
    """Return the inverse of the symmetric matrix plus a multiple of the identity."""
    unit = jnp.eye(len(matrix), dtype=matrix.dtype)
    factor = jax.scipy.linalg.cho_factor(matrix + added * unit, lower=True)
    return jax.scipy.linalg.cho_solve(factor, unit)


@jax.jit
def precondition(inverses: tuple[Any, Any], gradient_AxG: Any) -> Any:
    """Return the product of a gradient with both inverses."""
    return inverses[0] @ gradient_AxG @ inverses[1]


def pack_triangle(matrix: np.ndarray, buffer: np.ndarray, weight: float = 1.0) -> None:
    """Copy the lower triangle of a matrix, times a weight, into a vector by rows."""
    copy_triangle(matrix, buffer, buffer.dtype.type(weight))


def unpack_triangle(buffer: np.ndarray, order: int) -> np.ndarray:
    """Return the symmetric matrix of a packed lower triangle."""
    matrix = np.empty((order, order), buffer.dtype)
    fill_symmetric(matrix, buffer, buffer.dtype.type(0))
    return matrix


@njit(nogil=True, cache=True)
def copy_triangle(matrix, buffer, factor):
    at = 0
    for row in range(len(matrix)):
        for column in range(row + 1):
            buffer[at] = matrix[row, column] * factor
            at += 1


@njit(nogil=True, cache=True)
def fill_symmetric(matrix, buffer, zero):
    at = 0
    for row in range(len(matrix)):
        for column in range(row + 1):
            value = buffer[at] + zero  # has no negative zeros
            matrix[row, column] = matrix[column, row] = value
            at += 1
