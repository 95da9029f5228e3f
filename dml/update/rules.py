"""Compiled rules by which gradients change a table's rows.

Each rule is optax's, number by number, in one pass over the touched rows and without
fast math. A row without a gradient does not change, nor do its momentum and its number
of steps (which change in optax).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import float32, int64, njit, types, void

from dml.update.rows import adagrad as step

MOMENTUM, B1, B2 = np.float32(0.9), np.float32(0.9), np.float32(0.999)
REST1, REST2 = np.float32(1 - 0.9), np.float32(1 - 0.999)
ADAGRAD_EPS, ADAM_EPS = np.float32(1e-7), np.float32(1e-8)
ONE, ZERO = np.float32(1), np.float32(0)


def sgd(values_RxD, state, at_N, grads_NxD, rates_D):
    """w ← w - rate g."""
    for n in range(len(at_N)):
        row, grads = values_RxD[at_N[n]], grads_NxD[n]
        for d in range(len(row)):
            row[d] -= rates_D[d] * grads[d]


def momentum(values_RxD, state, at_N, grads_NxD, rates_D):
    """t ← g + 0.9 t; w ← w - rate t."""
    for n in range(len(at_N)):
        row, traces = values_RxD[at_N[n]], state[0][at_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            trace = grads[d] + MOMENTUM * traces[d]
            traces[d] = trace
            row[d] -= rates_D[d] * trace


def adagrad(values_RxD, state, at_N, grads_NxD, rates_D):
    """s ← s + g²; w ← w - rate g/√(s + ε), Duchi 2011."""
    for n in range(len(at_N)):
        row, squares = values_RxD[at_N[n]], state[0][at_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            total = grads[d] * grads[d] + squares[d]
            squares[d] = total
            row[d] -= rates_D[d] * (ONE / np.sqrt(total + ADAGRAD_EPS) * grads[d])


def glove(values_RxD, state, at_N, grads_NxD, rates_D):
    """s ← s + (rate g)²; w ← w - rate g/√s, as in update.rows."""
    for n in range(len(at_N)):
        row, squares = values_RxD[at_N[n]], state[0][at_N[n]]
        grads = grads_NxD[n]
        for d in range(len(row)):
            row[d], squares[d] = step(row[d], squares[d], rates_D[d] * grads[d])


def adam(values_RxD, state, at_N, grads_NxD, rates_D):
    """m, s ← means of g, g²; w ← w - rate (m/p)/(√(s/q) + ε), Kingma 2014.

    p, q are the same means of ones: 1 - 0.9^t and 1 - 0.999^t after a row's t-th step.
    """
    for n in range(len(at_N)):
        row, grads = values_RxD[at_N[n]], grads_NxD[n]
        m, s = state[0][at_N[n]], state[1][at_N[n]]
        p, q = state[2][at_N[n]], state[3][at_N[n]]
        # three loops: with more arrays the compiler cannot exclude that they overlap
        for d in range(len(row)):
            m[d] = REST1 * grads[d] + B1 * m[d]
            p[d] = REST1 + B1 * p[d]
        for d in range(len(row)):
            s[d] = REST2 * (grads[d] * grads[d]) + B2 * s[d]
            q[d] = REST2 + B2 * q[d]
        for d in range(len(row)):
            root = np.sqrt(s[d] / q[d])
            row[d] -= rates_D[d] * (m[d] / p[d] / (root + ADAM_EPS))


@njit(nogil=True, cache=True)
def shrink(values_RxD, at_N, amounts_D):
    """w ← sign(w) max(|w| - amount, 0): the proximal step of an L1 norm."""
    for n in range(len(at_N)):
        row = values_RxD[at_N[n]]
        for d in range(len(row)):
            small = abs(row[d]) <= amounts_D[d]  # False for NaN, which stays
            row[d] = ZERO if small else row[d] - np.copysign(amounts_D[d], row[d])


class Rule(NamedTuple):
    """A kernel, and the initial value of each array of its state."""

    kernel: Callable[..., None]
    starts: tuple[float, ...] = ()


RULES = {
    "sgd": Rule(sgd),
    "momentum": Rule(momentum, (0.0,)),
    "adagrad": Rule(adagrad, (0.1,)),
    "adam": Rule(adam, (0.0, 0.0, 0.0, 0.0)),
    "glove": Rule(glove, (1.0,)),
}


@functools.cache
def compiled(name: str) -> Callable[..., None]:
    """Compile a rule once, for writable and read-only arrays."""
    rule, table = RULES[name], float32[:, ::1]
    read = (
        types.Array(kind, axes, "C", readonly=True)
        for kind, axes in ((int64, 1), (float32, 2), (float32, 1))
    )
    signature = void(table, types.UniTuple(table, len(rule.starts)), *read)
    # error model of numpy: divisions that may raise are not vectorised
    options = {"nogil": True, "cache": True, "error_model": "numpy"}
    return njit(signature, **options)(rule.kernel)
