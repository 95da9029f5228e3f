"""Updates of sparse parameters: AdaGrad (Duchi 2011) on the rows of a table.

    row    | vector, padded |  its squares  | bias, its square, … |
             0 … pad          pad … 2 pad     2 pad … 2 pad + 16

A row contains all numbers that an update touches, in complete cache lines. The table is
changed in place. The padding of a vector is zeros whose gradient is zero.
"""

import functools
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from dml.types import Embeddings

LANES = 16  # floats in the widest register, and in a cache line
HALF, THREE_HALVES = np.float32(0.5), np.float32(1.5)
# sums may be reordered to fill registers, but NaN must stay NaN
FAST = {"reassoc", "contract", "arcp", "nsz"}


def padded(dim: int) -> int:
    """Return the number of floats of a padded vector: a multiple of two registers.

    Loops over an odd number of registers run at two thirds of the speed.
    """
    return -(-dim // (2 * LANES)) * 2 * LANES


def width(dim: int) -> int:
    """Return the number of floats in a row."""
    return 2 * padded(dim) + LANES


def pad_of(table_TxR: np.ndarray) -> int:
    """Return the number of floats of a padded vector in this table."""
    return (table_TxR.shape[1] - LANES) // 2


def pack(state: Embeddings) -> np.ndarray:
    """Return the table of a state."""
    rows, dim = state.vectors_TxD.shape
    pad = padded(dim)
    table_TxR = np.zeros((rows, width(dim)), np.float32)
    table_TxR[:, pad : 2 * pad] = 1  # in the padding: roots must be finite
    table_TxR[:, :dim] = state.vectors_TxD
    table_TxR[:, pad : pad + dim] = state.vector_squares_TxD
    table_TxR[:, 2 * pad] = state.biases_T
    table_TxR[:, 2 * pad + 1] = state.bias_squares_T
    return table_TxR


def unpack(table_TxR: np.ndarray, dim: int) -> Embeddings:
    """Return a copy of the state in a table."""
    pad = padded(dim)
    return Embeddings(
        table_TxR[:, :dim].copy(),
        table_TxR[:, 2 * pad].copy(),
        table_TxR[:, pad : pad + dim].copy(),
        table_TxR[:, 2 * pad + 1].copy(),
    )


@intrinsic
def as_integer(typing, number):
    """Return the bits of a float32 as an int32."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), emit


@intrinsic
def as_float(typing, number):
    """Return the bits of an int32 as a float32."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


@njit(inline="always")
def rsqrt(number):
    """Return 1/√number to 5e-6: an estimate from its bits, and two steps of Newton.

    Exact roots and divisions run at a fourth of the speed; the estimates of different
    processors differ.
    """
    half = HALF * number
    guess = as_float(np.int32(0x5F3759DF) - (as_integer(number) >> np.int32(1)))
    guess = guess * (THREE_HALVES - half * guess * guess)
    return guess * (THREE_HALVES - half * guess * guess)


@njit(inline="always")
def dot(x, y, length):
    """Return the inner product of the first numbers of two rows."""
    product = np.float32(0)
    for d in range(length):
        product += x[d] * y[d]
    return product


@njit(inline="always")
def adagrad(number, squares, step):
    """Return a number and its sum of squares after a step; the sum includes it."""
    total = squares + step * step
    return number - step * rsqrt(total), total


@functools.cache
def kernel(pad: int) -> Callable[..., None]:
    """Compile AdaGrad for vectors of `pad` floats: known lengths are faster."""

    @njit(fastmath=FAST, nogil=True, cache=True)
    def update(table_TxR, index, grads_NxS, rate):
        for n in range(len(index)):
            row, grads = table_TxR[index[n]], grads_NxS[n]
            for d in range(pad):
                row[d], row[pad + d] = adagrad(row[d], row[pad + d], rate * grads[d])
            bias, squares = row[2 * pad], row[2 * pad + 1]
            row[2 * pad], row[2 * pad + 1] = adagrad(bias, squares, grads[pad])

    return update


class AdaGrad:
    """A table of rows and its rule: a Shard whose squares are part of its values.

    Args:
      values: The rows; copied.
      rate: Learning rate of vectors; that of biases is 1.
    """

    state = ()

    def __init__(self, values: np.ndarray, rate: float) -> None:
        self.values, self.rate = values.copy(), rate

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update rows, each once, by their summed gradients: vector, then bias.

        As in the reference program the squares are those of rate · gradient, and a bias
        has rate 1. But squares are added before the step, so that no number moves by
        more than 1 for sums of any number of records: this is optax's adagrad(1) of
        rate · gradient.
        """
        step = kernel(pad_of(self.values))
        step(self.values, at, grads, np.float32(self.rate))
