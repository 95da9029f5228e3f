"""Sparse gradients of tables of rows, and models updated one edge at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np


class Ratings(NamedTuple):
    """Ratings of items by users. Users and items are rows of one table, users first."""

    users: np.ndarray  # int32
    items: np.ndarray  # int32
    values: np.ndarray  # float32


class Rows(NamedTuple):
    """A sparse gradient: values[i] belongs to row index[i]."""

    index: np.ndarray | slice  # type: ignore[assignment]  # hides tuple.index
    values: np.ndarray


class RowBatch(NamedTuple):
    """Indices of a minibatch's examples, and the rows of the table that they touch."""

    indices: np.ndarray
    rows: np.ndarray | slice


class Edges(NamedTuple):
    """Rows of a table by edge: edge e touches rows[starts[e] : starts[e + 1]].

    Rows of an edge are distinct and ascending. An edge is an example whose loss depends
    on few rows.
    """

    starts: np.ndarray  # int64, number of edges + 1
    rows: np.ndarray  # uint32


class Embeddings(NamedTuple):
    """Vectors and biases of T rows, with AdaGrad's sums of squared gradients.

    For a vocabulary of V words: with one table T = V, with two tables T = 2 V and the
    words precede the contexts.
    """

    vectors_TxD: np.ndarray
    biases_T: np.ndarray
    vector_squares_TxD: np.ndarray
    bias_squares_T: np.ndarray


class SparseModel(Protocol):
    """Interface of a model for updates one edge at a time; kernels close over it.

    The data is a NamedTuple of arrays whose first field is `edges`. A table has T rows:
    its shape is T, or TxD for vectors of D elements. `gradient` and `move` are compiled
    without fast math, so that results are bit-identical with and without inlining.
    """

    # (table, data, edge, step of the epoch, grads) -> the loss of the edge, and whether
    # its gradient is nonzero; if so, grads[s] is the gradient of the edge's s-th row
    gradient: Callable[..., tuple[float, bool]]
    # (table, row, grads, s, rate): replaces the gradient grads[s] by a change of `row`
    move: Callable[..., None]

    def __hash__(self) -> int: ...

    def decay(self, data: Any) -> float:
        """Return the weight of the term ½ ‖table‖² that `settle` applies.

        The weight is 0 if the gradients of the edges include the term.
        """
        ...

    def with_rate(self, data: Any, rate: float) -> Any:
        """Return the data for an epoch at this rate; at rate 0 `settle` is a no-op."""
        ...

    def settle(self, table: np.ndarray, data: Any, steps: int) -> None:
        """Apply the deferred decay of `steps` steps to a table or some of its rows."""
        ...

    def objective(self, table: np.ndarray, data: Any) -> float:
        """Return the mean loss of all edges plus the term of the norm."""
        ...


class Kernel(NamedTuple):
    """Compiled sequential in-place descent over examples.

    Attributes:
      data: Arrays that all workers of a host read; with `model`, its first field is
        `edges`.
      model: Functions for the gradient of an edge and the change of a row.
      fused: (table, data, blocks, rate) -> the summed loss of the examples of these
        blocks; updates the table after each example. Used in place of `model`.
      sizes: Number of examples of each block; None if all blocks have equal length.
      blocks: Slices of rows that rotation moves together; blocks of the second side
        come last.
      sides: 2 if the two rows of an example are of different kinds, such as a user and
        an item; 1 if they are of one kind.
    """

    data: Any
    model: Any = None  # a SparseModel
    fused: Callable[..., float] | None = None
    sizes: Any = None  # int64
    blocks: Any = None  # a list of slices
    sides: int = 2


class Shard(Protocol):
    """R rows of a table with their update rule."""

    values: np.ndarray  # RxD float32; the server may replace it by an equal copy

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update distinct rows by their gradients.

        Args:
          rows: Indices of the rows in this shard.
          grads: Gradients of the rows.
          share: Share of a minibatch that the gradients are computed from.
        """
        ...
