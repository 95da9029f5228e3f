"""The exchange of sufficient factors (Xie 2014; Poseidon, Zhang 2017).

    rank 0   x0 dy0 ─┐          x0 x1 x2     dy0 dy1 dy2
    rank 1   x1 dy1 ─┼─ all-gather ──►  dw = (x0 x1 x2)ᵀ (dy0 dy1 dy2)   on every rank
    rank 2   x2 dy2 ─┘          in rank order

The gradient of a dense layer over all ranks is one product of the concatenated factors
of all ranks. Every rank computes this product from equal matrices, so the results are
equal to the last bit, for any numbers of rows of the ranks.

This is not a `Reducer`: the buffer of a Reducer has a rank's term of the gradient and
receives the mean, of the same length. Here a rank sends K(M + N) words, the result has
the words of all ranks, and no sum is computed before the product.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.all_gather_parts import all_gather_parts


class Columns(NamedTuple):
    """The numbers of columns of the factors of a kernel."""

    inputs: int
    outputs: int


# path of a kernel -> its factors: a K x M and a K x N matrix
Pairs = Mapping[str, tuple[Any, Any]]


def gather_factors(
    comm: Comm,
    own: Pairs,
    columns: Mapping[str, Columns],
    rows: Mapping[str, Sequence[int]],
    weight: float = 1.0,
    dtype: Any = np.float32,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the factors of all ranks, concatenated in rank order; collective.

    All kernels are in one message. For rows K_r of rank r: p-1 rounds of a ring, and
    over all ranks (p-1)·ΣK_r(M + N) elements.

    Args:
      comm: The ranks.
      own: Factors of this rank; ignored if the rank has no rows.
      columns: Columns of each kernel, equal on all ranks.
      rows: Number of rows of each rank, for each kernel.
      weight: This rank's share of the examples. It multiplies the second factors, so
        that the product is the mean over ranks.
      dtype: Dtype of the message.
    """
    if not columns:
        return {}
    lengths = np.array(
        [
            sum(rows[path][rank] * sum(widths) for path, widths in columns.items())
            for rank in range(comm.size)
        ]
    )
    part = np.empty(lengths[comm.rank], dtype)
    for path, (inputs, outputs) in views(part, columns, rows, comm.rank).items():
        if len(inputs):
            check(comm, path, own[path], (inputs.shape, outputs.shape))
            inputs[:] = own[path][0]
            np.multiply(own[path][1], outputs.dtype.type(weight), out=outputs)
    gathered = np.split(
        all_gather_parts(comm, part, lengths), np.cumsum(lengths)[:-1].tolist()
    )
    by_rank = [views(part, columns, rows, rank) for rank, part in enumerate(gathered)]
    return {
        path: (
            np.concatenate([pairs[path][0] for pairs in by_rank]),
            np.concatenate([pairs[path][1] for pairs in by_rank]),
        )
        for path in columns
    }


def views(
    part: np.ndarray,
    columns: Mapping[str, Columns],
    rows: Mapping[str, Sequence[int]],
    rank: int,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the matrices of each kernel as views of a rank's part of the message."""
    matrices, start = {}, 0
    for path, widths in columns.items():
        pair = []
        for width in widths:
            stop = start + rows[path][rank] * width
            pair.append(part[start:stop].reshape(rows[path][rank], width))
            start = stop
        matrices[path] = pair[0], pair[1]
    return matrices


def check(comm: Comm, path: str, pair: tuple[Any, Any], shapes: Any) -> None:
    """Raise BadInput unless the factors of a kernel have the shapes of the message."""
    if tuple(np.shape(factor) for factor in pair) != tuple(shapes):
        raise BadInput(
            f"rank {comm.rank}: expected factors of {path} with shapes {shapes}, got "
            f"{[np.shape(factor) for factor in pair]}; pass as many rows as examples, "
            "or a fixed number for each"
        )
