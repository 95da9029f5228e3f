"""A tree of parameters as a table of one column; every example touches all rows.

Parameter servers store rows. A problem whose parameters are a tree is trained as this
table; a problem of rows is returned unchanged.
"""

from functools import partial
from typing import Any

import numpy as np

from dml.strategies.parameters import Update
from dml.types import BadInput, Params, Problem, Rows
from dml.wire.comm.buffers import Layout, layout, pack, unpack


def as_table(problem: Problem) -> Problem:
    """Return the problem of a table."""
    if problem.table:
        return problem.table()
    if isinstance(problem.params, np.ndarray) and problem.params.ndim == 2:
        return problem
    return flattened(problem)


def row_rule(update: Update) -> Any:
    """Return the rule that updates rows as the optimizer would update the tree."""
    if not hasattr(update, "init"):
        return update
    from dml.update.flat import flat

    return partial(flat, update)


def flattened(problem: Problem) -> Problem:
    """Return the problem of one column with all numbers of the parameters."""
    flat_layout = layout(problem.params)
    if set(flat_layout.dtypes) != {np.dtype(np.float32)}:
        kinds = ", ".join(sorted({str(dtype) for dtype in flat_layout.dtypes}))
        raise BadInput(f"expected params of float32, got {kinds}; cast them")
    start_Tx1 = np.empty((flat_layout.length, 1), np.float32)
    pack(problem.params, start_Tx1[:, 0])
    every = slice(0, flat_layout.length)
    differentiate = compiled(problem) if problem.model else partial(by_leaves, problem)

    def gradient(table_Tx1: np.ndarray, batch: Any) -> tuple[float, Rows]:
        loss, grads_T = differentiate(table_Tx1[:, 0], batch)
        return float(loss), Rows(every, grads_T[:, None])

    return Problem(
        start_Tx1,
        problem.examples,
        gradient,
        lambda table_Tx1: problem.evaluate(unpacked(table_Tx1, flat_layout)),
        problem.take,
        lambda batch: every,
    )


def compiled(problem: Problem) -> Any:
    """Return (vector, batch) -> loss and flat gradient, compiled as one program."""
    from jax.flatten_util import ravel_pytree

    from dml.models.gradient import gradient

    assert problem.model
    model_loss = problem.model.loss
    _, tree = ravel_pytree(problem.params)

    def loss(vector: Any, batch: Any) -> Any:
        return model_loss(tree(vector), batch)

    def differentiate(vector_T: np.ndarray, batch: Any) -> tuple[Any, np.ndarray]:
        lost, grads = gradient(loss, vector_T, batch)
        return lost, np.array(grads)  # a copy: JAX's memory is read-only

    return differentiate


def by_leaves(
    problem: Problem, vector_T: np.ndarray, batch: Any
) -> tuple[Any, np.ndarray]:
    """Return the loss and the packed gradient of a problem without a model."""
    flat_layout = layout(problem.params)
    loss, grads = problem.gradient(unpack(vector_T, flat_layout), batch)
    packed_T = np.empty_like(vector_T)
    pack(grads, packed_T)
    return loss, packed_T


def unpacked(table_Tx1: np.ndarray, flat_layout: Layout) -> Params:
    """Return the table's numbers as a tree."""
    return unpack(table_Tx1[:, 0], flat_layout)
