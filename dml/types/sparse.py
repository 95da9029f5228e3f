"""Sparse gradients of tables of rows, and models that are updated edge by edge."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np


class Ratings(NamedTuple):
    """What users gave to items; both are rows of one table, users' rows come first."""

    users: np.ndarray  # int32
    items: np.ndarray  # int32
    values: np.ndarray  # float32


class Rows(NamedTuple):
    """A sparse gradient: values[i] belongs to row index[i]."""

    index: np.ndarray | slice  # type: ignore[assignment]  # hides tuple.index
    values: np.ndarray


class RowBatch(NamedTuple):
    """A minibatch of a table's examples, and the rows that they touch."""

    indices: np.ndarray
    rows: np.ndarray | slice


class Edges(NamedTuple):
    """What updates touch: edge e has rows[starts[e] : starts[e + 1]] of a table.

    Each of them once, rising. An edge is an example whose loss depends on few rows.
    """

    starts: np.ndarray  # int64, one more than there are edges
    rows: np.ndarray  # uint32


class Embeddings(NamedTuple):
    """Rows of vectors, each with a bias, and what AdaGrad has summed for each number.

    T rows: one a word where there is one table; else V words, then V contexts.
    """

    vectors_TxD: np.ndarray
    biases_T: np.ndarray
    vector_squares_TxD: np.ndarray
    bias_squares_T: np.ndarray


class SparseModel(Protocol):
    """What a module of models offers for updates edge by edge; kernels close over it.

    Its data is a NamedTuple of arrays whose first field is `edges`; a table is T
    numbers or TxD. The first two are compiled, without fast math: bits depend on no
    inlining.
    """

    # table, data, edge, step of the epoch, grads -> the edge's loss, and whether there
    # is a gradient: then grads[s] is that of its s-th row
    gradient: Callable[..., tuple[float, bool]]
    # table, row, grads, s, rate: grads[s] becomes what the row is to be changed by
    move: Callable[..., None]

    def __hash__(self) -> int: ...

    def decay(self, data: Any) -> float:
        """Return the weight of half the squared table that `settle` applies.

        It is 0 where the gradients of edges have the norm.
        """
        ...

    def paced(self, data: Any, rate: float) -> Any:
        """Return the data for an epoch at this rate; at 0 `settle` changes nothing."""
        ...

    def settle(self, table: np.ndarray, data: Any, steps: int) -> None:
        """Make the table, or some of its rows, what it stands for after these steps."""
        ...

    def objective(self, table: np.ndarray, data: Any) -> float:
        """Return the mean loss of all edges, with the norm."""
        ...


class Kernel(NamedTuple):
    """Compiled descent, in place, over one example after another.

    data: arrays that all workers of a host read; a model's has the field `edges` first.
    model: the gradient of an edge and the change of a row.
    fused: (table, data, blocks, rate) -> the summed loss of the examples of these
        blocks; it changes the table by each. It replaces the model.
    sizes: examples of each block; None: all blocks are equally long.
    blocks: rows that rotation moves together; those of a second side come last.
    sides: 2 where an example has a row of each of two sides, 1 where both its rows are
        of one side.
    """

    data: Any
    model: Any = None  # a SparseModel
    fused: Callable[..., float] | None = None
    sizes: Any = None  # int64
    blocks: Any = None  # a list of slices
    sides: int = 2


class Shard(Protocol):
    """Rows of a table, and how gradients change them."""

    values: np.ndarray  # RxD float32; the server may put an equal copy here

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Step on those rows (each once); grads are of that share of a minibatch."""
        ...
