"""Some rows and columns of a table of features, dense or sparse.

          own columns
         ┌───────────┐   w
    rows │     X     │ · │ │ = X w     terms of the margins, summed over ranks
         └───────────┘   │ │
           Xᵀ a                        a gradient of the own columns: nothing is sent
           X Xᵀ                        terms of the Gram matrix of rows

Every operation states its work, in operations of floating point and bytes of memory,
so that it can take the time of a stated processor on virtual ranks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from dml.types import no_op

LINE = 64  # bytes that the access of one element of a vector moves, in no order

Work = Callable[[float, float], object]  # (operations, bytes) of an operation


class Block(NamedTuple):
    """Rows of the columns of a rank.

    Attributes:
      matrix: Dense array in the order of rows, or CSR matrix with sorted indices.
      work: Called before each operation with its floating-point operations and the
        bytes that it reads and writes.
    """

    matrix: Any
    work: Work = no_op

    @property
    def features(self) -> int:
        """Return the number of columns."""
        return int(self.matrix.shape[1])

    @property
    def nbytes(self) -> int:
        """Return the bytes of the features."""
        if isinstance(self.matrix, np.ndarray):
            return self.matrix.nbytes
        parts = self.matrix.data, self.matrix.indices, self.matrix.indptr
        return sum(part.nbytes for part in parts)

    def take(self, rows: np.ndarray) -> "Block":
        """Return a copy of the given rows."""
        taken = self._replace(matrix=self.matrix[rows])
        self.work(0.0, 2.0 * taken.nbytes)
        return taken

    def product(self, vector_D: np.ndarray) -> np.ndarray:
        """Return X w."""
        self._passes(vector_D, 1)
        if isinstance(self.matrix, np.ndarray):
            return self.matrix @ vector_D
        out_N = np.empty(self.matrix.shape[0], vector_D.dtype)
        multiply(*parts(self.matrix), vector_D, out_N)
        return out_N

    def add(self, factors_N: np.ndarray, vector_D: np.ndarray) -> None:
        """Add Xᵀ a to a vector."""
        self._passes(vector_D, 2)
        if isinstance(self.matrix, np.ndarray):
            vector_D += factors_N @ self.matrix
        else:
            scatter(*parts(self.matrix), factors_N, vector_D)

    def gram(self) -> np.ndarray:
        """Return X Xᵀ; of a sparse matrix, the part below the diagonal only."""
        rows, itemsize = self.matrix.shape[0], self.matrix.dtype.itemsize
        if isinstance(self.matrix, np.ndarray):
            self.work(self.matrix.size * rows, self.matrix.nbytes)
            return self.matrix @ self.matrix.T
        merged = self.matrix.nnz * rows
        self.work(merged, merged * (4 + itemsize))
        gram_NxN = np.zeros((rows, rows), self.matrix.dtype)
        merge(*parts(self.matrix), gram_NxN)
        return gram_NxN

    def _passes(self, vector_D: np.ndarray, accesses: int) -> None:
        """State the work of a pass over the features that accesses a vector."""
        if isinstance(self.matrix, np.ndarray):
            moved = self.matrix.nbytes + accesses * vector_D.nbytes
            self.work(2 * self.matrix.size, moved)
        else:
            count = self.matrix.nnz
            self.work(2 * count, count * (8 + accesses * LINE))


def block(matrix: Any, dtype: Any = np.float64, work: Work = no_op) -> Block:
    """Return the block of a matrix, converted to the dtype if necessary."""
    if not sparse.issparse(matrix):
        return Block(np.ascontiguousarray(matrix, dtype), work)
    rows = sparse.csr_matrix(matrix, dtype=dtype)
    rows.sum_duplicates()  # which sorts the indices
    return Block(rows, work)


def parts(matrix: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return starts, indices and values of a sparse matrix."""
    return matrix.indptr, matrix.indices, matrix.data


@njit(nogil=True, cache=True)
def multiply(starts, indices, values, vector_D, out_N):
    """Set out = X w."""
    for row in range(len(out_N)):
        total = vector_D.dtype.type(0)
        for k in range(starts[row], starts[row + 1]):
            total += values[k] * vector_D[indices[k]]
        out_N[row] = total


@njit(nogil=True, cache=True)
def scatter(starts, indices, values, factors_N, vector_D):
    """Add Xᵀ a to w."""
    for row in range(len(factors_N)):
        for k in range(starts[row], starts[row + 1]):
            vector_D[indices[k]] += values[k] * factors_N[row]


@njit(nogil=True, cache=True)
def merge(starts, indices, values, gram_NxN):
    """Set the products of different rows, below the diagonal; indices are sorted."""
    for row in range(len(gram_NxN)):
        for other in range(row):
            first, second = starts[row], starts[other]
            total = gram_NxN.dtype.type(0)
            while first < starts[row + 1] and second < starts[other + 1]:
                if indices[first] == indices[second]:
                    total += values[first] * values[second]
                    first += 1
                    second += 1
                elif indices[first] < indices[second]:
                    first += 1
                else:
                    second += 1
            gram_NxN[row, other] = total
