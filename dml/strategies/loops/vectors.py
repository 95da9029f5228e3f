"""Gradients as float32 vectors of one length: of a tree, or of all rows of a table.

tree     w1 │ b1 │ w2 │ b2        leaves in order
table    row 0 │ row 1 │ …        rows that a minibatch does not touch are zero
"""

from collections.abc import Sequence

import numpy as np

from dml.strategies.loops.parameters import TableParameters, Tree
from dml.types import BadInput, Grads, Params, Rows
from dml.wire.comm.buffers import layout, pack, unpack
from dml.wire.reducers.rows import indices

ALL = (slice(None),)


class Columns:
    """The columns of gradients of a table that are not always zero.

    Args:
      table: TxR array, with the shape of a gradient of all rows.
      columns: The columns; by default all.
    """

    def __init__(self, table: np.ndarray, columns: Sequence[slice] = ALL):
        self.columns = columns
        self.wide = columns[-1].stop or table.shape[1]
        self.width = sum(len(range(self.wide)[part]) for part in columns)

    def select(self, grads: Rows | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the row numbers of a gradient, and its selected columns."""
        if grads is None:
            return np.empty(0, np.int32), np.empty((0, self.width))
        touched = indices(grads.index).astype(np.int32, copy=False)
        return touched, np.concatenate(
            [grads.values[:, part] for part in self.columns], axis=1
        )

    def restore(self, index: np.ndarray, narrow: np.ndarray) -> Rows:
        """Return rows with all columns; columns that are not selected are zero."""
        if self.columns == ALL:
            return Rows(index, narrow)
        values, first = np.zeros((len(index), self.wide), np.float32), 0
        for part in self.columns:
            last = first + len(range(self.wide)[part])
            values[:, part] = narrow[:, first:last]
            first = last
        return Rows(index, values)

    def rows_that_changed(self, buffer_TxW: np.ndarray) -> Rows:
        """Return the rows of a dense gradient that are not zero."""
        index = np.flatnonzero(buffer_TxW.any(axis=1)).astype(np.int32)
        return self.restore(index, buffer_TxW[index])


class TreeVectors:
    """Vectors of gradients that are trees like the parameters."""

    def __init__(self, params: Params):
        self.layout = layout(params)
        self.length = self.layout.length
        dtype = np.result_type(*self.layout.dtypes)
        if dtype.itemsize > 4:
            raise BadInput(
                f"expected parameters of float32, got {dtype}; convert them, or pass "
                "--strategy=synchronous"
            )

    def pack(self, grads: Grads | None, vector: np.ndarray) -> None:
        """Write a gradient to a vector; None writes zeros."""
        import jax

        if grads is None:
            vector[:] = 0
        else:
            pack(jax.device_get(grads), vector)

    def unpack(self, vector: np.ndarray) -> Grads:
        return unpack(vector, self.layout)

    def moved(self, params: Params, vector: np.ndarray) -> Params:
        """Return parameters minus a vector."""
        import jax

        return jax.tree.map(lambda leaf, step: leaf - step, params, self.unpack(vector))


class TableVectors:
    """Vectors of gradients that are rows of a table.

    Args:
      table: The table.
      columns: Columns of gradients that are not always zero.
    """

    def __init__(self, table: np.ndarray, columns: Sequence[slice] = ALL):
        self.rows, self.columns = len(table), Columns(table, columns)
        self.length = self.rows * self.columns.width

    def pack(self, grads: Rows | None, vector: np.ndarray) -> None:
        """Write a gradient to a vector; None writes zeros."""
        vector[:] = 0
        index, narrow = self.columns.select(grads)
        vector.reshape(self.rows, -1)[index] = narrow

    def unpack(self, vector: np.ndarray) -> Rows:
        """Return the rows that are not zero."""
        return self.columns.rows_that_changed(vector.reshape(self.rows, -1))

    def moved(self, table: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return a table minus a vector."""
        index, values = self.unpack(vector)
        result = table.copy()
        result[index, : values.shape[1]] -= values
        return result


def make_vectors(
    parameters: Tree | TableParameters, columns: Sequence[slice] = ALL
) -> TreeVectors | TableVectors:
    """Return the vectors of gradients of a tree or a table.

    Args:
      parameters: Parameters in training.
      columns: Columns of a table's gradients that are not always zero.
    """
    if isinstance(parameters, Tree):
        return TreeVectors(parameters.params)
    return TableVectors(parameters.shard.values, columns)
