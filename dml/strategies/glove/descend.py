"""Gradient and update in one compiled loop: stochastic descent, record by record.

The kernel of `serial`, `hogwild` and `rotation`. As in the reference program, AdaGrad's
squares are those of rate · gradient and are added after the step, and a bias has rate
1.
"""

import functools
from collections.abc import Callable

import numpy as np
from numba import njit

from dml.data.text.tiles import Tiles
from dml.update.rows import FAST, HALF, dot, pad_of, rsqrt

CLIP = np.float32(100)  # greatest gradient, as in the reference program


@functools.cache
def kernel(pad: int) -> Callable[..., float]:
    """Compile for vectors of `pad` floats: constant lengths are faster."""

    @njit(fastmath=FAST, nogil=True, cache=True)
    def descend(table_TxR, starts, firsts, offsets, logs, weights, tiles, rate):
        words, contexts = offsets
        loss = 0.0
        for t in tiles:
            for k in range(starts[t], starts[t + 1]):
                x = table_TxR[firsts[0][t] + words[k]]
                y = table_TxR[firsts[1][t] + contexts[k]]
                miss = dot(x, y, pad) + x[2 * pad] + y[2 * pad] - logs[k]
                grad = weights[k] * miss
                loss += HALF * grad * miss
                for d in range(pad):
                    a, b, a_squares, b_squares = x[d], y[d], x[pad + d], y[pad + d]
                    to_a = min(max(grad * b, -CLIP), CLIP) * rate
                    to_b = min(max(grad * a, -CLIP), CLIP) * rate
                    x[d] = a - to_a * rsqrt(a_squares)
                    y[d] = b - to_b * rsqrt(b_squares)
                    x[pad + d] = a_squares + to_a * to_a
                    y[pad + d] = b_squares + to_b * to_b
                x[2 * pad] -= grad * rsqrt(x[2 * pad + 1])
                y[2 * pad] -= grad * rsqrt(y[2 * pad + 1])
                x[2 * pad + 1] += grad * grad
                y[2 * pad + 1] += grad * grad
        return loss

    return descend


def descend(
    table_TxR: np.ndarray, tiles: Tiles, tile_numbers: np.ndarray, rate: float
) -> float:
    """Update the table by each record of some tiles; return the summed loss.

    Args:
      table_TxR: The table, changed in place.
      tiles: All records.
      tile_numbers: Numbers of the tiles.
      rate: Learning rate.
    """
    return kernel(pad_of(table_TxR))(
        table_TxR,
        tiles.starts,
        (tiles.grid.words, tiles.grid.contexts),
        (tiles.words, tiles.contexts),
        tiles.logs,
        tiles.weights,
        np.ascontiguousarray(
            tile_numbers
        ),  # a strided array would compile another kernel
        np.float32(rate),
    )
