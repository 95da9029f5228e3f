"""All-reduces whose results are known: inputs of all ranks, and the expected sums."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.wire.plans.topology import SEGMENT

OPS = {
    "sum": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
DTYPES = (
    *("float16", "float32", "float64", "int32", "int64", "uint8", "uint32", "uint64"),
    *("complex64", "complex128"),
)
LONG = 100_003  # elements of a long buffer, used by the tests


class Case(NamedTuple):
    """An all-reduce whose result is known."""

    size: int  # number of ranks
    length: int  # number of elements
    dtype: str
    op: str  # key of OPS
    rounded: bool = False  # whether additions round, so that their order matters


def lengths(size: int) -> list[int]:
    """Return numbers of elements: few, about one per rank, and 97."""
    return sorted({0, 1, size - 1, size, size + 1, 97})


def cases(size: int, lengths: Iterable[int], all_pairs: bool = True) -> list[Case]:
    """Return cases of each length.

    Args:
      size: Number of ranks.
      lengths: Numbers of elements.
      all_pairs: Whether every dtype is combined with every operation of it; otherwise
        each dtype is combined with two operations.
    """
    pairs = [(dtype, op) for dtype in DTYPES for op in operations(dtype)]
    if not all_pairs:
        pairs = [
            (dtype, ops[(i + j) % len(ops)])
            for i, dtype in enumerate(DTYPES)
            if (ops := operations(dtype))
            for j in (0, len(ops) // 2)
        ]
    exact = [Case(size, n, *pair) for n in lengths for pair in pairs]
    floats = [name for name in DTYPES if name.startswith("float")]
    return exact + [
        Case(size, n, dtype, "sum", True) for n in lengths for dtype in floats
    ]


def segmented_cases(size: int) -> list[Case]:
    """Return a case of each dtype with more bytes than a segment."""
    ops = [operations(dtype) for dtype in DTYPES]
    return [
        Case(size, SEGMENT + 11, dtype, ops[i][(i + size) % len(ops[i])])
        for i, dtype in enumerate(DTYPES)
    ]


def operations(dtype: str) -> list[str]:
    """Return the operations of a dtype; complex numbers have no order."""
    return list(OPS)[:2] if dtype.startswith("complex") else list(OPS)


@lru_cache(maxsize=32)
def inputs(case: Case) -> np.ndarray:
    """Return the inputs of all ranks, a row per rank.

    The result of a case that is not rounded is exact in any order: floats are small
    whole numbers (powers of two in products, and a power of i if they are complex).
    Integers have more bits than the significand of a float.
    """
    shape, dtype = (case.size, case.length), np.dtype(case.dtype)
    rng = np.random.default_rng([case.size, case.length, case.op == "product"])
    if case.rounded:
        return (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2, shape)).astype(
            dtype
        )
    if dtype.kind == "u":  # sums are modulo a power of two
        rows = rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return rows | (case.op == "product")
    if dtype.kind == "i":
        limit = np.iinfo(dtype).max // 32
        rows = rng.integers(-limit, limit, shape, dtype, endpoint=True)
        return rows | (case.op == "product")  # a product of odd numbers is not zero
    if case.op == "product":
        rows = rng.choice([-1.0, 1.0], shape)
        rows[:8] *= rng.choice([0.5, 2.0], rows[:8].shape)  # within float16
        rows = rng.permuted(rows, axis=0)
        turns = rng.choice([1, 1j], shape) if dtype.kind == "c" else 1
        return (rows * turns).astype(dtype)
    rows = rng.integers(-60, 60, shape, endpoint=True)
    if dtype.kind == "c":
        rows = rows + 1j * rng.integers(-60, 60, shape, endpoint=True)
    return rows.astype(dtype)


@lru_cache(maxsize=32)
def expected(case: Case) -> np.ndarray:
    """Return the result, computed by one process; in float64 for rounded sums."""
    rows = inputs(case)
    if case.rounded:
        return rows.astype(np.float64).sum(axis=0)
    return OPS[case.op].reduce(rows, axis=0, dtype=rows.dtype)


def fault(case: Case, result: np.ndarray) -> str:
    """Describe the first wrong element of a result; empty if all are correct."""
    reference = expected(case)
    if case.rounded:
        # The bound for any order of p-1 additions, each with an error of at most half
        # the last bit of a partial sum (Higham 2002, eq. 4.4).
        rows = inputs(case)
        magnitudes = np.abs(rows.astype(np.float64)).sum(axis=0)
        error = np.abs(result.astype(np.float64) - reference)
        wrong = ~(error <= (case.size - 1) * np.finfo(rows.dtype).eps * magnitudes)
    else:
        wrong = ~(result == reference)
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    return (
        f"the {case.op} of {case.length} elements of {case.dtype} on {case.size} ranks "
        f"has {wrong.sum()} wrong elements, the first at index {first}: expected "
        f"{reference[first].item()!r}, got {result[first].item()!r}"
    )
