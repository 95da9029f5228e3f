"""PowerSGD (Vogels 2019): a low-rank approximation of the mean gradient.

    M  a x b    gradient of a matrix, with the error of earlier steps
    P = M Q     a x r; all-reduce; orthonormal basis      Q: b x r, of the last step
    Q = Mᵀ P    b x r; all-reduce
    mean ≈ P Qᵀ

One step of subspace iteration, started at a basis of the Q of the step before. P and Q
are linear in M, so any all-reduce sums them. Vectors, and matrices of fewer than
2r(a + b) elements, are summed exactly. Words per step: those of all-reduces of r(a + b)
elements per matrix.

The alternating form computes one product per step, on one side and then on the other:

    even steps    P = M Q      mean ≈ P Qᵀ      basis of P for the next step
    odd steps     Q = Mᵀ P     mean ≈ P Qᵀ      basis of Q for the next step

It waits for one all-reduce per step instead of two, and sends half as many words.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dml.types import AllReduce, BadInput, Comm
from dml.wire.comm.buffers import TreeLayout
from dml.wire.reducers.lossy import Lossy

MIN_RATIO = 2  # least compression ratio of a matrix that is approximated


def power_sgd(rank: int, allreduce: AllReduce) -> Lossy:
    """Return the sum of rank-r approximations; use it with error feedback.

    Args:
      rank: Rank r of the approximation.
      allreduce: Sums the factors.
    """
    check_rank(rank)

    def start(layout: TreeLayout) -> Any:
        return {layout.shapes: first_factors(layout, rank)}

    def add_up(comm: Comm, term: np.ndarray, lost: Any, state: Any) -> Any:
        ((shapes, old),) = state.items()
        matrices, rest = views(term, shapes, rank)
        lefts = products(matrices, old, rest)
        allreduce(comm, lefts.buffer, op=np.add)
        write_rest(lefts, rest)
        bases = [basis_of(left) for left in lefts.parts]
        rights = products([matrix.T for matrix in matrices], bases)
        if lost is not None:
            errors, _ = views(lost, shapes, rank)
            own = zip(errors, matrices, bases, rights.parts, strict=True)
            for error, matrix, basis, right in own:
                np.subtract(matrix, basis @ right.T, out=error)
        allreduce(comm, rights.buffer, op=np.add)
        for matrix, basis, right in zip(matrices, bases, rights.parts, strict=True):
            np.matmul(basis, right.T, out=matrix)
        return {shapes: [basis_of(right) for right in rights.parts]}

    return Lossy(start, add_up)


def power_sgd_alternating(rank: int, allreduce: AllReduce) -> Lossy:
    """Return the sum of rank-r approximations, with one all-reduce per step.

    Args:
      rank: Rank r of the approximation.
      allreduce: Sums the factors.
    """
    check_rank(rank)

    def start(layout: TreeLayout) -> Any:
        bases = [basis_of(factor) for factor in first_factors(layout, rank)]
        return {layout.shapes: (np.zeros(1, np.int64), bases)}

    def add_up(comm: Comm, term: np.ndarray, lost: Any, state: Any) -> Any:
        ((shapes, (step, bases)),) = state.items()
        matrices, rest = views(term, shapes, rank)
        is_odd = bool(step[0] % 2)
        sides = [matrix.T for matrix in matrices] if is_odd else matrices
        factors = products(sides, bases, rest)
        # in the order of the matrix's memory, which a transpose is not
        pairs = [bases, factors.parts] if is_odd else [factors.parts, bases]
        if lost is not None:
            errors, _ = views(lost, shapes, rank)
            own = zip(errors, matrices, *pairs, strict=True)
            for error, matrix, left, right in own:
                np.subtract(matrix, left @ right.T, out=error)
        allreduce(comm, factors.buffer, op=np.add)
        write_rest(factors, rest)
        for matrix, left, right in zip(matrices, *pairs, strict=True):
            np.matmul(left, right.T, out=matrix)
        return {shapes: (step + 1, [basis_of(factor) for factor in factors.parts])}

    return Lossy(start, add_up)


def check_rank(rank: int) -> None:
    """Raise BadInput unless a rank is in 1…1024."""
    if not 1 <= rank <= 1024:
        raise BadInput(f"expected a rank of 1 to 1024, got {rank}; correct it")


def first_factors(layout: TreeLayout, rank: int) -> list[np.ndarray]:
    """Return a random factor of each approximated matrix, equal on all ranks."""
    if not any(is_approximated(shape, rank) for shape in layout.shapes):
        shapes = ", ".join(map(str, layout.shapes[:8]))
        raise BadInput(
            f"expected a matrix of more than 2r(a + b) elements for rank {rank}, "
            f"got {shapes}; pass another --reduce, or a smaller rank"
        )
    draws = np.random.default_rng(0)
    return [
        draws.standard_normal((matrix_shape(shape)[1], rank)).astype(np.float32)
        for shape in layout.shapes
        if is_approximated(shape, rank)
    ]


class Packed(NamedTuple):
    """Matrices in one buffer, followed by other elements.

    Attributes:
      buffer: All elements.
      parts: Views of the matrices.
      rest: View of the other elements.
    """

    buffer: np.ndarray
    parts: list[np.ndarray]
    rest: np.ndarray


def products(
    matrices: list[np.ndarray],
    factors: list[np.ndarray],
    rest: Sequence[np.ndarray] = (),
) -> Packed:
    """Return each matrix times its factor, and the rest, in one buffer."""
    shapes = [
        (len(matrix), factor.shape[1])
        for matrix, factor in zip(matrices, factors, strict=True)
    ]
    edges = np.cumsum([0, *map(math.prod, shapes)]).tolist()
    buffer = np.empty(edges[-1] + sum(map(len, rest)), np.float32)
    parts = [
        buffer[start:stop].reshape(shape)
        for (start, stop), shape in zip(pairwise(edges), shapes, strict=True)
    ]
    for part, matrix, factor in zip(parts, matrices, factors, strict=True):
        np.matmul(matrix, factor, out=part)
    if rest:
        np.concatenate(rest, out=buffer[edges[-1] :])
    return Packed(buffer, parts, buffer[edges[-1] :])


def write_rest(packed: Packed, rest: Sequence[np.ndarray]) -> None:
    """Copy the rest of a buffer back to its parts."""
    edges = np.cumsum([0, *map(len, rest)]).tolist()
    for part, (start, stop) in zip(rest, pairwise(edges), strict=True):
        part[:] = packed.rest[start:stop]


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
