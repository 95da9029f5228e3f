"""The best split of a node: gains in float64, from integers.

    T(G) = sign(G) max(|G| - α, 0)
    gain = T(G_L)²/(H_L + λ) + T(G_R)²/(H_R + λ) - T(G)²/(H + λ)

    bins   0 1 2 │ 3 4 … NaN      number: a bin and the side of missing values; both
           left  │ right          sides are tried if the node has any

    {2, 5} │ the others, NaN      category: a set of categories goes left

Ties: the lower column, then the lower bin, then missing values to the right. Up to
ONE_HOT categories: one against the others. Else those with at least SMOOTH rows, in the
order of g/(h + SMOOTH), from both ends, with λ + SMOOTH, at most MOST of them in a set
and GROUP rows more for each further set (LightGBM's rules).

Column constraints bound the values of the children by the interval of the node; a value
that is clamped to w has the gain -(2 T(G) w + (H + λ) w²).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

# no test for a divisor of 0
compiled = njit(cache=True, nogil=True, error_model="numpy")
ONE_HOT, SMOOTH, MOST, GROUP = 4, 10, 32, 100
WORDS, BITSET = 7, 4  # of a split, and of its categories


class Limits(NamedTuple):
    """Settings that the search reads, and the units of the integers."""

    g_unit: float
    h_unit: float
    l1: float
    l2: float
    min_rows: int
    min_hessian: float
    min_gain: float


class Node(NamedTuple):
    """Sums of a node in integers, and the interval of its value."""

    g: int
    h: int
    rows: int
    low: float
    high: float


class Split(NamedTuple):
    """A split of a node; the sums are those of the left child, in integers."""

    gain: float
    column: int
    bin: int  # largest bin on the left; -1 for categories
    missing_left: int
    g: int
    h: int
    rows: int
    set: tuple[int, int, int, int]  # bits of the bins of categories on the left


@compiled
def output(g, h, low, high, l1, l2):
    """Return the value of a leaf, without the rate."""
    t = max(abs(g) - l1, 0.0)
    value = (-t if g > 0.0 else t) / (h + l2)
    return min(max(value, low), high)


@compiled
def score(g, h, low, high, l1, l2):
    """Return the decrease of twice the loss by a leaf."""
    t = max(abs(g) - l1, 0.0)
    if low == -np.inf and high == np.inf:
        return t * t / (h + l2)
    value = (-t if g > 0.0 else t) / (h + l2)
    if value < low or value > high:
        w = min(max(value, low), high)
        signed = t if g > 0.0 else -t
        return -(2.0 * signed * w + (h + l2) * w * w)
    return t * t / (h + l2)


@compiled
def gain_of(left, node, limits, l2, direction):
    """Return the gain of a split without the parent's score; -inf if it is refused.

    `left` has g, h and rows of the left child.
    """
    g, h, rows = left
    other_h, other_rows = node.h - h, node.rows - rows
    if h <= 0 or other_h <= 0 or min(rows, other_rows) < limits.min_rows:
        return -np.inf
    h_left, h_right = h * limits.h_unit, other_h * limits.h_unit
    if min(h_left, h_right) < limits.min_hessian:
        return -np.inf
    g_left, g_right = g * limits.g_unit, (node.g - g) * limits.g_unit
    low, high = node.low, node.high
    if direction != 0:
        one = output(g_left, h_left, low, high, limits.l1, l2)
        two = output(g_right, h_right, low, high, limits.l1, l2)
        if direction * (two - one) < 0.0:
            return -np.inf
    return score(g_left, h_left, low, high, limits.l1, l2) + score(
        g_right, h_right, low, high, limits.l1, l2
    )


@compiled
def search_number(sums_SxW, column, node, limits):
    """Return (gain, bin, missing_left, g, h, rows) of the best split of a column."""
    begin, count, missing, direction, _ = column
    zero = np.int64(0)
    best: Any = (-np.inf, zero, zero, zero, zero, zero)
    last = sums_SxW.shape[1] - 1
    none = (np.int64(0), np.int64(0), np.int64(0))
    absent = none
    if missing:
        end = begin + count
        absent = (sums_SxW[end, 0], sums_SxW[end, 1], sums_SxW[end, last])
    some = absent[0] != 0 or absent[1] != 0 or absent[2] != 0
    for missing_left in range(2 if some else 1):
        g, h, rows = absent if missing_left else none
        for b in range(count if some and not missing_left else count - 1):
            g += sums_SxW[begin + b, 0]
            h += sums_SxW[begin + b, 1]
            rows += sums_SxW[begin + b, last]
            gain = gain_of((g, h, rows), node, limits, limits.l2, direction)
            if gain > best[0] or (gain == best[0] and b < best[1]):
                side = missing_left if some else np.int64(2 * h >= node.h)
                best = (gain, b, side, g, h, rows)
    return best


@compiled
def search_category(sums_SxW, column, node, limits, set_4):
    """Return (gain, g, h, rows) of the best set of categories; write its bits."""
    begin, count = column[0], column[1]
    last = sums_SxW.shape[1] - 1
    best = (-np.inf, np.int64(0), np.int64(0), np.int64(0))
    set_4[:] = 0
    if count <= ONE_HOT:
        for b in range(count):
            s = begin + b
            left = (sums_SxW[s, 0], sums_SxW[s, 1], sums_SxW[s, last])
            gain = gain_of(left, node, limits, limits.l2, 0)
            if gain > best[0]:
                best = (gain, left[0], left[1], left[2])
                set_4[0] = np.int64(1) << b
        return best
    used = np.zeros(count, np.int64)
    ratios = np.zeros(count)
    number = 0
    for b in range(count):
        s = begin + b
        if sums_SxW[s, last] >= SMOOTH:
            g, h = sums_SxW[s, 0] * limits.g_unit, sums_SxW[s, 1] * limits.h_unit
            used[number], ratios[number] = b, g / (h + SMOOTH)
            number += 1
    order = np.argsort(ratios[:number], kind="mergesort")
    most, best_length, best_back = min(MOST, (number + 1) // 2), 0, False
    for back in (False, True):
        g = h = rows = group = np.int64(0)
        for i in range(min(most, number)):
            s = begin + used[order[number - 1 - i if back else i]]
            g += sums_SxW[s, 0]
            h += sums_SxW[s, 1]
            rows += sums_SxW[s, last]
            group += sums_SxW[s, last]
            if group < GROUP or node.rows - rows < GROUP:
                continue
            gain = gain_of((g, h, rows), node, limits, limits.l2 + SMOOTH, 0)
            if gain > best[0]:
                best = (gain, g, h, rows)
                best_length, best_back = i + 1, back
                group = np.int64(0)
    for i in range(best_length):
        b = used[order[number - 1 - i if best_back else i]]
        set_4[b >> 6] |= np.int64(1) << (b & 63)
    return best


@compiled
def search_columns(sums_SxW, columns_Fx5, read, node, limits, record):
    """Write the best split of columns as words to `record`.

    columns_Fx5: first slot, number of bins, whether values are missing, 2 for a
    category or else the direction of a constraint, and number in the table. `read`:
    whether the round reads a column.
    """
    best = limits.min_gain
    g, h = node.g * limits.g_unit, node.h * limits.h_unit
    parent_gain = score(g, h, node.low, node.high, limits.l1, limits.l2)
    record[:] = 0
    record[0] = np.float64(-np.inf).view(np.int64)
    set_4 = np.zeros(4, np.int64)
    for f in range(columns_Fx5.shape[0]):
        begin, count, missing, kind, number = columns_Fx5[f]
        column = (begin, count, missing, kind, number)
        if not read[f]:
            continue
        if kind == 2:
            found = search_category(sums_SxW, column, node, limits, set_4)
            gain, left_g, left_h, rows = found
            b, side = np.int64(-1), np.int64(0)
        else:
            found_bin = search_number(sums_SxW, column, node, limits)
            gain, b, side, left_g, left_h, rows = found_bin
        if gain - parent_gain > best:
            best = gain - parent_gain
            record[0] = np.float64(best).view(np.int64)
            record[1], record[2], record[3] = number, b, side
            record[4], record[5], record[6] = left_g, left_h, rows
            if kind == 2:
                record[7:11] = set_4
            elif len(record) > 7:
                record[7:11] = 0


@compiled
def best_rank(records_PxW):
    """Return the rank of the best split, by gain, then by column; none: -1."""
    best, best_gain = -1, -np.inf
    for rank in range(len(records_PxW)):
        gain = np.int64(records_PxW[rank, 0]).view(np.float64)
        lower = best >= 0 and records_PxW[rank, 1] < records_PxW[best, 1]
        if gain > best_gain or (gain == best_gain and lower):
            best, best_gain = rank, gain
    return best


def best_of(records_PxW: np.ndarray) -> Split | None:
    """Return the best of the splits of all ranks; None if no rank has one."""
    rank = best_rank(records_PxW)
    if rank < 0:
        return None
    words = records_PxW[rank].tolist()
    gain = float(records_PxW[rank, 0].view(np.float64))
    bits = tuple(words[WORDS:]) or (0,) * BITSET
    return Split._make([gain, *words[1:WORDS], bits])
