"""Updates of sparse parameters: AdaGrad (Duchi 2011) on the rows of a table.

    row    | vector, padded | its squares, padded | bias, its squares, unused |
             0 … pad          pad … 2 pad           2 pad … 2 pad + 16

"Squares" are AdaGrad's sums of squared gradients. A row consists of complete cache
lines, and contains all elements that an update touches. The table is changed in place.
The padding of a vector is zeros, whose gradients are zero.
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


def padded_length(dim: int) -> int:
    """Return the number of floats of a padded vector: a multiple of two registers.

    Loops over an odd number of registers are 1.5 times slower.
    """
    return -(-dim // (2 * LANES)) * 2 * LANES


def width(dim: int) -> int:
    """Return the number of floats in a row, for vectors of `dim` floats."""
    return 2 * padded_length(dim) + LANES


def pad_of(table_TxR: np.ndarray) -> int:
    """Return the number of floats of a padded vector in this table."""
    return (table_TxR.shape[1] - LANES) // 2


def pack(state: Embeddings) -> np.ndarray:
    """Return the table of a state."""
    rows, dim = state.vectors_TxD.shape
    pad = padded_length(dim)
    table_TxR = np.zeros((rows, width(dim)), np.float32)
    table_TxR[:, pad : 2 * pad] = 1  # in the padding: roots must be finite
    table_TxR[:, :dim] = state.vectors_TxD
    table_TxR[:, pad : pad + dim] = state.vector_squares_TxD
    table_TxR[:, 2 * pad] = state.biases_T
    table_TxR[:, 2 * pad + 1] = state.bias_squares_T
    return table_TxR


def unpack(table_TxR: np.ndarray, dim: int) -> Embeddings:
    """Return a copy of the state in a table."""
    pad = padded_length(dim)
    return Embeddings(
        table_TxR[:, :dim].copy(),
        table_TxR[:, 2 * pad].copy(),
        table_TxR[:, pad : pad + dim].copy(),
        table_TxR[:, 2 * pad + 1].copy(),
    )


@intrinsic
def as_integer(typing, number):
    """Reinterpret the bits of a float32 as an int32."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), emit


@intrinsic
def as_float(typing, number):
    """Reinterpret the bits of an int32 as a float32."""

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), emit


@njit(inline="always")
def rsqrt(number):
    """Return 1/√number with a relative error of at most 5e-6.

    The estimate from the bits of the number is improved by two steps of Newton's
    method. Exact roots and divisions are 4 times slower. The processor's instruction
    for 1/√number is not used, because its result differs between processors.
    """
    half = HALF * number
    guess = as_float(np.int32(0x5F3759DF) - (as_integer(number) >> np.int32(1)))
    guess = guess * (THREE_HALVES - half * guess * guess)
    return guess * (THREE_HALVES - half * guess * guess)


@njit(inline="always")
def dot(x, y, length):
    """Return the inner product of the first `length` elements of two rows."""
    product = np.float32(0)
    for d in range(length):
        product += x[d] * y[d]
    return product


@njit(inline="always")
def adagrad(value, squares, step):
    """Return value - step / √total and total = squares + step²."""
    total = squares + step * step
    return value - step * rsqrt(total), total


@functools.cache
def kernel(pad: int) -> Callable[..., None]:
    """Compile AdaGrad for vectors of `pad` floats; a constant length is faster."""

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
    """A Shard updated by AdaGrad, whose values include AdaGrad's squares.

    Args:
      values: The table, as returned by `pack`; copied.
      rate: Learning rate of vectors; the rate of biases is 1.
    """

    state = ()

    def __init__(self, values: np.ndarray, rate: float) -> None:
        self.values, self.rate = values.copy(), rate

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update distinct rows by their summed gradients: vector, then bias.

        As in Stanford's program, AdaGrad sums the squares of rate · gradient, and a
        bias has rate 1. Unlike in that program, the squares are added before the step,
        so that no element changes by more than 1, however many records are summed. The
        rule is optax's adagrad(1) of rate · gradient.
        """
        update = kernel(pad_of(self.values))
        update(self.values, rows, grads, np.float32(self.rate))
