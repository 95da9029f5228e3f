"""Layouts of datatypes: the bytes of one element, as an index array.

A dense layout is its bytes 0 to size - 1 without a gap and has no index array.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np


class DatatypeLayout:
    """The bytes of one element of a datatype, in the order of their transfer.

    Attributes:
      size: Bytes that are transferred.
      lb, extent: Lower bound, and distance of consecutive elements, in bytes.
      true_lb, true_ub: Bounds of the bytes.
      alignment: Of the largest basic type, in bytes.
      basic: NumPy dtype of all basic elements; None if they differ.
      sizes: Bytes of each basic element of one element, if there are several types.
    """

    def __init__(
        self,
        size: int,
        bounds: tuple[int, int],
        true_bounds: tuple[int, int],
        basic: np.dtype | None,
        alignment: int,
        make: Callable[[], np.ndarray] | None = None,
    ):
        self.size = size
        self.lb, self.extent = bounds[0], bounds[1] - bounds[0]
        self.true_lb, self.true_ub = true_bounds
        self.basic, self.alignment, self.make = basic, alignment, make
        self.dense = make is None
        self.sizes: list[tuple[int, DatatypeLayout]] = []  # (count, layout) of parts

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.arange(self.size) if self.make is None else self.make()

    def indices(self, start: int, count: int) -> np.ndarray:
        """Return the indices of the bytes of `count` elements at byte `start`."""
        starts = start + self.extent * np.arange(count)
        return (starts[:, None] + self.offsets).reshape(-1)

    def bounds(self, start: int, count: int) -> tuple[int, int]:
        """Return the first byte, and the byte after the last, of `count` elements."""
        last = start + (count - 1) * self.extent
        return min(start, last) + self.true_lb, max(start, last) + self.true_ub

    def elements(self, nbytes: int) -> int:
        """Return the number of basic elements of `nbytes` transferred bytes."""
        if not self.size:
            return 0
        if not self.sizes:
            width = self.basic.itemsize if self.basic is not None else self.size
            return nbytes // width
        number, rest = divmod(nbytes, self.size)
        found = number * sum(n * part.elements(part.size) for n, part in self.sizes)
        for count, part in self.sizes:
            taken = min(rest, count * part.size)
            if part.size:
                found += part.elements(taken)
            rest -= taken
        return found


def basic(dtype: Any, size: int = 0) -> DatatypeLayout:
    """Return the layout of a basic type."""
    dtype = np.dtype(dtype)
    size = size or dtype.itemsize
    return DatatypeLayout(size, (0, size), (0, size), dtype, dtype.alignment)


def blocks(
    parts: Sequence[tuple[int, int, DatatypeLayout]], pad: bool = False
) -> DatatypeLayout:
    """Return the layout of blocks (displacement in bytes, count, layout).

    Args:
      parts: The blocks, in the order of their transfer.
      pad: Whether the extent is a multiple of the alignment, as of a struct.
    """
    parts = [(at, n, layout) for at, n, layout in parts if n > 0]
    size = sum(n * layout.size for _, n, layout in parts)
    lows, highs, true_lows, true_highs = [], [], [], []
    for at, n, layout in parts:
        last = at + (n - 1) * layout.extent
        lows.append(min(at, last) + layout.lb)
        highs.append(max(at, last) + layout.lb + layout.extent)
        if layout.size:
            low, high = layout.bounds(at, n)
            true_lows.append(low)
            true_highs.append(high)
    low, high = min(lows, default=0), max(highs, default=0)
    true = min(true_lows, default=0), max(true_highs, default=0)
    alignment = max((layout.alignment for *_, layout in parts), default=1)
    if pad:
        high += -(high - low) % alignment
    basics = {layout.basic for *_, layout in parts}
    kind = basics.pop() if len(basics) == 1 else None
    end, dense = 0, True  # dense: each block starts where the last ended
    for at, n, layout in parts:
        whole = layout.dense and layout.extent == layout.size and not layout.lb
        dense = dense and at == end and whole
        end = at + n * layout.size
    dense = dense and (low, high) == (0, size)

    def make() -> np.ndarray:
        arrays = [layout.indices(at, n) for at, n, layout in parts]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)

    made = DatatypeLayout(
        size, (low, high), true, kind, alignment, None if dense else make
    )
    if kind is None:
        made.sizes = [(n, layout) for _, n, layout in parts]
    return made


def resized(layout: DatatypeLayout, lb: int, extent: int) -> DatatypeLayout:
    """Return a layout with other bounds."""
    true = layout.true_lb, layout.true_ub
    dense = layout.dense and lb == 0 and extent == layout.size
    make = None if dense else (lambda: layout.offsets)
    made = DatatypeLayout(
        layout.size, (lb, lb + extent), true, layout.basic, layout.alignment, make
    )
    made.sizes = layout.sizes
    return made


def grid(
    layout: DatatypeLayout, shape: Sequence[int], chosen: Sequence[np.ndarray]
) -> DatatypeLayout:
    """Return the layout of chosen indices of each axis of an array in C order."""
    total = int(np.prod(shape, dtype=np.int64))
    places = np.zeros(1, np.int64)
    for side, indices in zip(shape, chosen, strict=True):
        places = (places[:, None] * side + indices).reshape(-1)
    extent = layout.extent
    count = len(places)
    first, last = (int(places.min()), int(places.max())) if count else (0, 0)
    low, high = layout.bounds(first * extent, last - first + 1) if count else (0, 0)
    bounds = (0, total * extent)

    def make() -> np.ndarray:
        return (places[:, None] * extent + layout.offsets).reshape(-1)

    whole = count == total and layout.dense and layout.extent == layout.size
    made = DatatypeLayout(
        count * layout.size,
        bounds,
        (low, high),
        layout.basic,
        layout.alignment,
        None if whole else make,
    )
    made.sizes = [(count, layout)] if layout.sizes else []
    return made
