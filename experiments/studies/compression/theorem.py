"""Rows of quantization.py: QSGD's bits, variance and nonzero levels by their bounds."""

import math
from typing import Any

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns
from dml.types import BadInput
from dml.wire.comm.buffers import layout, pack
from dml.wire.reducers.codecs import decode, elias
from dml.wire.reducers.codecs.hashing import seed_of
from dml.wire.reducers.codecs.levels import WHOLE, qsgd
from studies.compression.problems import find

Row = dict[str, Any]
EXAMPLES = 64  # of the gradient

COLUMNS: Columns = {
    "vector": (8, "{vector}"),
    "n": (6, "{length}"),
    "levels": (6, "{levels}"),
    "bits": (9, "{bits:.1f}"),
    "bound": (9, "{bits_bound:.1f}"),
    "packed": (7, "{packed_bits}"),
    "error": (8, "{error:.4f}"),
    "bound ": (8, "{error_bound:.4f}"),
    "nonzero": (8, "{nonzero:.1f}"),
    "bound  ": (8, "{nonzero_bound:.1f}"),
}


def vectors(longest: int, seed: int) -> dict[str, np.ndarray]:
    """Return vectors of at least `longest` elements by name.

    The gradient is that of 64 digits by a network of 26,122 parameters.
    """
    task = find("digits")
    length = layout(task.params).length
    if longest > length:
        raise BadInput(
            f"expected lengths up to {length}, the parameters of the network, got "
            f"{longest}; pass smaller --lengths"
        )
    draws = np.random.default_rng(seed)
    _, grads = task.gradient(task.params, task.take(np.arange(EXAMPLES)))
    gradient = np.empty(length, np.float32)
    pack(grads, gradient)
    order = draws.permutation(length)  # parts with elements of all layers
    return {
        "normal": draws.standard_normal(longest, np.float32),
        "gradient": gradient[order],
    }


def row(name: str, vector: np.ndarray, levels: int, trials: int) -> Row:
    """Return the means over random roundings of a vector, and their bounds.

    Args:
      name: Name of the vector.
      vector: The vector, with one norm.
      levels: Number of levels.
      trials: Number of roundings.
    """
    length = len(vector)
    codec = qsgd(levels, WHOLE)
    code = np.empty(codec.nbytes(length), np.uint8)
    square = float(np.square(vector, dtype=np.float64).sum())
    bits, errors, nonzero = [], [], []
    for trial in range(trials):
        codec.encode(vector, code, seed_of(trial, 0))
        values = decode(codec, code, length)
        norm = code[:4].view(np.float32)[0]
        steps = values * (levels / norm if norm else 0)
        quantised = elias.Levels(norm, np.rint(steps).astype(np.int32))
        coded = elias.encode(quantised)
        check(quantised, elias.decode(coded, length))
        bits.append(coded.length)
        errors.append(float(np.square(values - vector, dtype=np.float64).sum()))
        nonzero.append(int(np.count_nonzero(quantised.levels_N)))
    root = math.sqrt(length)
    return {
        "table": "theorem",
        "vector": name,
        "length": length,
        "levels": levels,
        "bits": float(np.mean(bits)),
        "bits_bound": elias.bound(length, levels),
        "packed_bits": 8 * len(code),
        "error": float(np.mean(errors)) / (square or 1),
        "error_bound": min(length / levels**2, root / levels),
        "nonzero": float(np.mean(nonzero)),
        "nonzero_bound": levels * (levels + root),
    }


def check(values: elias.Levels, decoded: elias.Levels) -> None:
    """Raise FloatingPointError unless decoded values are what was encoded."""
    same = np.array_equal(values.levels_N, decoded.levels_N)
    if not same or values.norm != decoded.norm:
        raise FloatingPointError("expected the levels that were encoded, got others")


def summarize(rows: list[Row]) -> Row:
    """Return the largest share of each bound, and the ratio to packed bits."""
    shares = {
        f"{name}_share": max(row[name] / row[f"{name}_bound"] for row in rows)
        for name in ("bits", "error", "nonzero")
    }
    saved = [row["packed_bits"] / row["bits"] for row in rows]
    return shares | {"least_packed_ratio": min(saved), "most_packed_ratio": max(saved)}


def conclude(run: Run) -> str:
    """Return the largest shares of the bounds."""
    summary = run.summary
    return (
        f"Of their bounds, the Elias codes have at most {summary['bits_share']:.0%} of "
        f"the bits, {summary['error_share']:.0%} of the variance and "
        f"{summary['nonzero_share']:.0%} of the nonzero levels. They are "
        f"{summary['least_packed_ratio']:.2g} to {summary['most_packed_ratio']:.2g} "
        "times shorter than packed codes."
    )
