"""Sums of ranges of the sorted values of each column, by sorting in registers.

    register 0    x00 x01 x02 ... x0F       16 columns of row 0
    register 1    x10 x11 x12 ... x1F       a comparator of rows 0 and 1 is a minimum
       ...                                  and a maximum of two registers

Each column is read once and each sum is written once; `sorting` instead reads and
writes a tile in the cache at each comparator. Results are bit-identical to those of
`sorting`. A network is compiled for each number of rows, which takes about 0.15 s, so
this module is used for long rows.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from dml.wire.reducers.robust.networks import GREATER, LESSER, network
from dml.wire.reducers.robust.threads import Run

LANES = 16  # columns that are sorted at once: float32 values of the widest register
PART = 1 << 16  # columns of a thread's part
MOST_ROWS = 32  # registers of a core

INDEX = ir.IntType(32)
SINGLES = ir.VectorType(ir.FloatType(), LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def fits(rows_NxD: np.ndarray) -> bool:
    """Return whether the rows are few enough for the registers, and long enough."""
    count, length = rows_NxD.shape
    return 2 <= count <= MOST_ROWS and length >= PART and rows_NxD.strides[1] == 4


def sum_of_ranks(
    rows_NxD: np.ndarray, first: int, last: int, factor: float, run: Run
) -> tuple[np.ndarray, bool]:
    """Return a factor times the sum of sorted values first to last - 1 of each column.

    The second result is whether all values of all rows are finite.

    Args:
      rows_NxD: n values of each column, float32; `fits(rows_NxD)` holds.
      first: First rank.
      last: Rank after the last one.
      factor: Factor of the sum.
      run: Calls a function for each part of the columns.
    """
    sums = np.empty(rows_NxD.shape[1], np.float32)
    write = compiled(len(rows_NxD), first, last)

    def call(part: slice) -> float:
        # a part shorter than a register starts in the previous part
        start = min(part.start, part.stop - LANES)
        addresses = rows_NxD.ctypes.data, rows_NxD.strides[0], sums.ctypes.data
        return write(addresses, start, part.stop, factor)

    return sums, not any(run(call, len(sums), PART))


@lru_cache(maxsize=64)
def compiled(count: int, first: int, last: int) -> Callable[..., float]:
    """Return the function that writes the sums of columns start to stop - 1.

    Its result is 0 if the values of these columns are finite, and otherwise NaN.

    Args:
      count: Number of rows.
      first: First rank of a sum.
      last: Rank after the last one.
    """
    comparators = network(count, first, last).tolist()

    @intrinsic
    def write_block(typing, rows, stride, sums, factor):
        """Write the sums of 16 columns, from the addresses of the first of them."""

        def emit(context, builder, signature, arguments):
            address, step, target, scale = arguments
            values = [
                load(builder, builder.add(address, builder.mul(step, step.type(n))))
                for n in range(count)
            ]
            checked = sum_of_zeros(builder, values)
            compare_exchange(builder, values, comparators)
            sums = scaled_sum(builder, values[first:last], scale)
            builder.store(sums, pointer(builder, target), align=4)
            return checked

        return types.float32(types.intp, types.intp, types.intp, types.float64), emit

    @njit(nogil=True)
    def write(addresses, start, stop, factor):
        rows, stride, sums = addresses
        checked = np.float32(0)
        for block in range(start, stop, LANES):
            column = min(block, stop - LANES)  # the last block may repeat columns
            checked += write_block(rows + 4 * column, stride, sums + 4 * column, factor)
        return checked

    return write


# Emitters of instructions. Their order, and that of values in sums, is that of
# `sorting`, so that results have equal bits.


def pointer(builder: Any, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, SINGLES.as_pointer())


def load(builder: Any, address: ir.Value) -> ir.Value:
    return builder.load(pointer(builder, address), align=4)


def compare_exchange(
    builder: Any, values: list[ir.Value], comparators: Sequence[Sequence[int]]
) -> None:
    """Replace values by sorted ones."""
    for i, j, used in comparators:
        x, y = values[i], values[j]
        less = builder.fcmp_ordered("<", x, y)
        if used != GREATER:
            values[i] = builder.select(less, x, y)
        if used != LESSER:
            values[j] = builder.select(less, y, x)


def scaled_sum(builder: Any, values: Sequence[ir.Value], factor: ir.Value) -> ir.Value:
    """Return the sum of values in float64, in order, times a factor, as float32."""
    total = ir.Constant(DOUBLES, [0.0] * LANES)
    for value in values:
        total = builder.fadd(total, builder.fpext(value, DOUBLES))
    undefined = ir.Constant(DOUBLES, ir.Undefined)
    first = builder.insert_element(undefined, factor, INDEX(0))
    zeros = ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES)
    factors = builder.shuffle_vector(first, undefined, zeros)
    return builder.fptrunc(builder.fmul(total, factors), SINGLES)


def sum_of_zeros(builder: Any, values: Sequence[ir.Value]) -> ir.Value:
    """Return the sum of 0 times each value: 0, or NaN if a value is not finite."""
    zeros = total = ir.Constant(SINGLES, [0.0] * LANES)
    for value in values:
        total = builder.fadd(total, builder.fmul(value, zeros))
    checked = ir.Constant(ir.FloatType(), 0.0)
    for lane in range(LANES):
        checked = builder.fadd(checked, builder.extract_element(total, INDEX(lane)))
    return checked
