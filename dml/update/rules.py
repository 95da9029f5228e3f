"""Compiled rules by which gradients change a table's rows.

Each rule computes what optax computes, in one pass over the touched rows and without
fast math. Unlike in optax, momentum and number of steps of a row change only if the row
has a gradient.

A rule is (values, state, rows, gradients of the rows, learning rates of the columns);
it changes values and state in place.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import float32, int64, njit, types, void

from dml.update.rows import adagrad as glove_step

MOMENTUM = np.float32(0.9)
B1, B2 = np.float32(0.9), np.float32(0.999)
# order matters: float32 of the difference, not the difference of float32
ONE_MINUS_B1, ONE_MINUS_B2 = np.float32(1 - 0.9), np.float32(1 - 0.999)
ADAGRAD_EPS, ADAM_EPS = np.float32(1e-7), np.float32(1e-8)
ONE, ZERO = np.float32(1), np.float32(0)


def sgd(values_RxD, state, rows_N, grads_NxD, rates_D):
    """w ← w - rate g."""
    for n in range(len(rows_N)):
        row, grads = values_RxD[rows_N[n]], grads_NxD[n]
        for d in range(len(row)):
            row[d] -= rates_D[d] * grads[d]


def momentum(values_RxD, state, rows_N, grads_NxD, rates_D):
    """t ← g + 0.9 t; w ← w - rate t."""
    for n in range(len(rows_N)):
        row, traces = values_RxD[rows_N[n]], state[0][rows_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            trace = grads[d] + MOMENTUM * traces[d]
            traces[d] = trace
            row[d] -= rates_D[d] * trace


def adagrad(values_RxD, state, rows_N, grads_NxD, rates_D):
    """s ← s + g²; w ← w - rate g/√(s + ε), Duchi 2011."""
    for n in range(len(rows_N)):
        row, squares = values_RxD[rows_N[n]], state[0][rows_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            total = grads[d] * grads[d] + squares[d]
            squares[d] = total
            row[d] -= rates_D[d] * (ONE / np.sqrt(total + ADAGRAD_EPS) * grads[d])


def glove(values_RxD, state, rows_N, grads_NxD, rates_D):
    """s ← s + (rate g)²; w ← w - rate g/√s, as in update.rows."""
    for n in range(len(rows_N)):
        row, squares = values_RxD[rows_N[n]], state[0][rows_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            row[d], squares[d] = glove_step(row[d], squares[d], rates_D[d] * grads[d])


def adam(values_RxD, state, rows_N, grads_NxD, rates_D):
    """m, s ← means of g, g²; w ← w - rate (m/p)/(√(s/q) + ε), Kingma 2014.

    p and q are the same exponential means of ones, 1 - 0.9^t and 1 - 0.999^t after the
    t-th step of a row.
    """
    for n in range(len(rows_N)):
        row, grads = values_RxD[rows_N[n]], grads_NxD[n]
        m, s = state[0][rows_N[n]], state[1][rows_N[n]]
        p, q = state[2][rows_N[n]], state[3][rows_N[n]]
        # three loops: for more arrays per loop LLVM does not check that they are
        # disjoint, and does not vectorise
        for d in range(len(row)):
            m[d] = ONE_MINUS_B1 * grads[d] + B1 * m[d]
            p[d] = ONE_MINUS_B1 + B1 * p[d]
        for d in range(len(row)):
            s[d] = ONE_MINUS_B2 * (grads[d] * grads[d]) + B2 * s[d]
            q[d] = ONE_MINUS_B2 + B2 * q[d]
        for d in range(len(row)):
            root = np.sqrt(s[d] / q[d])
            row[d] -= rates_D[d] * (m[d] / p[d] / (root + ADAM_EPS))


@njit(nogil=True, cache=True)
def shrink(values_RxD, rows_N, amounts_D):
    """w ← sign(w) max(|w| - amount, 0): the proximal step of an L1 norm."""
    for n in range(len(rows_N)):
        row = values_RxD[rows_N[n]]
        for d in range(len(row)):
            is_zero = abs(row[d]) <= amounts_D[d]  # False for NaN, which stays
            row[d] = ZERO if is_zero else row[d] - np.copysign(amounts_D[d], row[d])


class RowRule(NamedTuple):
    """The function of a rule, and the initial value of each array of its state."""

    kernel: Callable[..., None]
    initial: tuple[float, ...] = ()


RULES = {
    "sgd": RowRule(sgd),
    "momentum": RowRule(momentum, (0.0,)),
    "adagrad": RowRule(adagrad, (0.1,)),
    "adam": RowRule(adam, (0.0, 0.0, 0.0, 0.0)),
    "glove": RowRule(glove, (1.0,)),
}


@functools.cache
def compile_rule(name: str) -> Callable[..., None]:
    """Compile a rule, once for writable and read-only arguments."""
    rule, table = RULES[name], float32[:, ::1]
    read_only = (
        types.Array(dtype, axes, "C", readonly=True)
        for dtype, axes in ((int64, 1), (float32, 2), (float32, 1))
    )
    signature = void(table, types.UniTuple(table, len(rule.initial)), *read_only)
    # NumPy's error model: divisions that may raise an exception are not vectorised
    options = {"nogil": True, "cache": True, "error_model": "numpy"}
    return njit(signature, **options)(rule.kernel)
