"""Layouts of parts of arrays: subarrays, and blocks of distributed arrays."""

from collections.abc import Sequence

import numpy as np

from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.layouts import DatatypeLayout, grid


def in_c_order(
    layout: DatatypeLayout, shape: list[int], chosen: list[np.ndarray], order: int
) -> DatatypeLayout:
    if order == CONSTANTS["ORDER_F"]:
        shape, chosen = shape[::-1], chosen[::-1]
    return grid(layout, shape, chosen)


def subarray(
    layout: DatatypeLayout,
    sizes: list[int],
    subsizes: list[int],
    starts: list[int],
    order: int,
) -> DatatypeLayout:
    if not len(sizes) == len(subsizes) == len(starts):
        raise ValueError(
            "Datatype.Create_subarray: expected equally many sizes, subsizes and "
            f"starts, got {len(sizes)}, {len(subsizes)} and {len(starts)}"
        )
    chosen = []
    for size, part, start in zip(sizes, subsizes, starts, strict=True):
        if not (part > 0 and 0 <= start <= size - part):
            raise error(
                "ERR_ARG",
                f"Datatype.Create_subarray: expected a part of {size} elements, got "
                f"{part} from {start}",
            )
        chosen.append(np.arange(start, start + part))
    return in_c_order(layout, sizes, chosen, order)


def darray(
    layout: DatatypeLayout,
    *,
    size: int,
    rank: int,
    gsizes: list[int],
    distribs: list[int],
    dargs: list[int],
    psizes: list[int],
    order: int,
) -> DatatypeLayout:
    """Return the layout of one rank's part; processes are in C order."""
    coords = np.unravel_index(rank, psizes)
    chosen = [
        owned(n, kind, argument, p, int(place))
        for n, kind, argument, p, place in zip(
            gsizes, distribs, dargs, psizes, coords, strict=True
        )
    ]
    return in_c_order(layout, gsizes, chosen, order)


def owned(n: int, kind: int, argument: int, p: int, place: int) -> np.ndarray:
    """Return the indices, of 0 to n - 1, of one of p processes."""
    default = argument == CONSTANTS["DISTRIBUTE_DFLT_DARG"]
    if kind == CONSTANTS["DISTRIBUTE_NONE"]:
        return np.arange(n)
    if kind == CONSTANTS["DISTRIBUTE_BLOCK"]:
        length = -(-n // p) if default else argument
        return np.arange(min(n, place * length), min(n, (place + 1) * length))
    length = 1 if default else argument
    every: Sequence[int] = [i for i in range(n) if i // length % p == place]
    return np.array(every, np.int64)
