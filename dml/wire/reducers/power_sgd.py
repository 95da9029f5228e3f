"""PowerSGD (Vogels 2019): a low-rank approximation of the mean gradient.

    M  a x b    gradient of a matrix, with the error of earlier steps
    P = M Q     a x r; all-reduce; orthonormal basis      Q: b x r, of the last step
    Q = Mᵀ P    b x r; all-reduce
    mean ≈ P Qᵀ

One step of subspace iteration, started at a basis of the Q of the step before. P and Q
are linear in M, so any all-reduce sums them. Vectors, and matrices of fewer than
2r(a + b) elements, are summed exactly. Words per step: those of all-reduces of r(a + b)
elements per matrix.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm
from dml.wire.comm.buffers import Layout
from dml.wire.reducers.lossy import Lossy

MIN_RATIO = 2  # least compression ratio of a matrix that is approximated


def power_sgd(rank: int, allreduce: AllReduce) -> Lossy:
    """Return the sum of rank-r approximations; use it with error feedback.

    Args:
      rank: Rank r of the approximation.
      allreduce: Sums the factors.
    """
    if not 1 <= rank <= 1024:
        raise BadInput(f"expected a rank of 1 to 1024, got {rank}; correct it")

    def start(layout: Layout) -> dict[tuple[tuple[int, ...], ...], list[np.ndarray]]:
        if not any(is_approximated(shape, rank) for shape in layout.shapes):
            shapes = ", ".join(map(str, layout.shapes[:8]))
            raise BadInput(
                f"expected a matrix of more than 2r(a + b) elements for rank {rank}, "
                f"got {shapes}; pass another --reduce, or a smaller rank"
            )
        draws = np.random.default_rng(0)  # equal on all ranks
        sides = [matrix_shape(shape) for shape in layout.shapes]
        factors = [
            draws.standard_normal((columns, rank)).astype(np.float32)
            for shape, (_, columns) in zip(layout.shapes, sides, strict=True)
            if is_approximated(shape, rank)
        ]
        return {layout.shapes: factors}

    def add_up(comm: Comm, term: np.ndarray, lost: Any, state: Any) -> Any:
        ((shapes, old),) = state.items()
        matrices, rest = views(term, shapes, rank)
        exact = sum(map(len, rest))
        lefts = packed([len(m) * rank for m in matrices], extra=exact)
        for left, matrix, right in zip(lefts.parts, matrices, old, strict=True):
            np.matmul(matrix, right, out=left.reshape(-1, rank))
        if rest:
            np.concatenate(rest, out=lefts.rest)
        allreduce(comm, lefts.buffer, op=np.add)
        bases = [basis_of(left.reshape(-1, rank)) for left in lefts.parts]
        rights = packed([m.shape[1] * rank for m in matrices])
        for right, matrix, basis in zip(rights.parts, matrices, bases, strict=True):
            np.matmul(matrix.T, basis, out=right.reshape(-1, rank))
        if lost is not None:
            errors, _ = views(lost, shapes, rank)
            own = zip(errors, matrices, bases, rights.parts, strict=True)
            for error, matrix, basis, right in own:
                np.subtract(matrix, basis @ right.reshape(-1, rank).T, out=error)
        allreduce(comm, rights.buffer, op=np.add)
        for m, basis, right in zip(matrices, bases, rights.parts, strict=True):
            np.matmul(basis, right.reshape(-1, rank).T, out=m)
        first = 0
        for part in rest:
            part[:] = lefts.rest[first : first + len(part)]
            first += len(part)
        new = [basis_of(right.reshape(-1, rank)) for right in rights.parts]
        return {shapes: new}

    return Lossy(start, add_up)


class Packed(NamedTuple):
    """One buffer with several parts and a rest."""

    buffer: np.ndarray
    parts: list[np.ndarray]
    rest: np.ndarray


def packed(lengths: list[int], extra: int = 0) -> Packed:
    """Allocate a buffer with parts of these lengths, and `extra` further elements."""
    edges = np.cumsum([0, *lengths]).tolist()
    buffer = np.empty(edges[-1] + extra, np.float32)
    parts = [buffer[start:stop] for start, stop in pairwise(edges)]
    return Packed(buffer, parts, buffer[edges[-1] :])


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the shape as a matrix: the last axis, and all others together."""
    columns = shape[-1] if shape else 1
    return math.prod(shape) // max(1, columns), columns


def is_approximated(shape: tuple[int, ...], rank: int) -> bool:
    """Return whether a low-rank approximation has at most half of the elements."""
    rows, columns = matrix_shape(shape)
    return len(shape) > 1 and rows * columns >= MIN_RATIO * rank * (rows + columns)


def views(
    vector: np.ndarray, shapes: tuple[tuple[int, ...], ...], rank: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return views of the approximated matrices of a vector, and of its other parts."""
    matrices, rest, start = [], [], 0
    for shape in shapes:
        part = vector[start : start + math.prod(shape)]
        start += len(part)
        if is_approximated(shape, rank):
            matrices.append(part.reshape(matrix_shape(shape)))
        else:
            rest.append(part)
    return matrices, rest


def basis_of(matrix: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of at least the columns, also if they are zero.

    Householder's method, unlike that of Gram and Schmidt, has an orthonormal result for
    dependent columns and for columns of any size.
    """
    basis: np.ndarray = np.linalg.qr(matrix)[0]
    return basis
