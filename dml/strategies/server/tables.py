"""Problems for parameter servers, which store a table of rows.

A tree of parameters becomes a table of one column, of which every example touches all
rows. A problem with a table is returned unchanged.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from dml.types import BadInput, Params, Problem, Rows
from dml.wire.comm.buffers import TreeLayout, layout, pack, unpack


def as_table(problem: Problem) -> Problem:
    """Return the problem with one table of rows as params."""
    if problem.table:
        return problem.table()
    if isinstance(problem.params, np.ndarray) and problem.params.ndim == 2:
        return problem
    return flatten(problem)


def flatten(problem: Problem) -> Problem:
    """Return the problem of one column with all elements of the tree."""
    flat_layout = layout(problem.params)
    if set(flat_layout.dtypes) != {np.dtype(np.float32)}:
        dtypes = ", ".join(sorted({str(dtype) for dtype in flat_layout.dtypes}))
        raise BadInput(f"expected params of float32, got {dtypes}; cast them")
    start_Tx1 = np.empty((flat_layout.length, 1), np.float32)
    pack(problem.params, start_Tx1[:, 0])
    all_rows = slice(0, flat_layout.length)
    differentiate = (
        compile_gradient(problem) if problem.model else partial(pack_gradient, problem)
    )

    def gradient(table_Tx1: np.ndarray, batch: Any) -> tuple[float, Rows]:
        loss, grads_T = differentiate(table_Tx1[:, 0], batch)
        return float(loss), Rows(all_rows, grads_T[:, None])

    return Problem(
        start_Tx1,
        problem.examples,
        gradient,
        lambda table_Tx1: problem.evaluate(unpack_table(table_Tx1, flat_layout)),
        problem.take,
        lambda batch: all_rows,
    )


def compile_gradient(problem: Problem) -> Any:
    """Return (vector, batch) -> (loss, flat gradient), compiled as one program."""
    import jax

    from dml.models.gradient import gradient

    assert problem.model
    leaves, structure = jax.tree.flatten(problem.params)
    loss = flat_loss(problem.model.loss, structure, tuple(map(np.shape, leaves)))

    def differentiate(vector_T: np.ndarray, batch: Any) -> tuple[Any, np.ndarray]:
        value, grads = gradient(loss, vector_T, batch)
        return value, np.array(grads)  # a copy, as JAX's memory is read-only

    return differentiate


@cache  # a static argument of a compiled function, which trainings share
def flat_loss(
    model_loss: Callable[[Params, Any], Any],
    structure: Any,
    shapes: tuple[tuple[int, ...], ...],
) -> Callable[[Any, Any], Any]:
    """Return (vector, batch) -> loss of a tree of float32 leaves."""
    from jax.flatten_util import ravel_pytree

    zeros = [np.zeros(shape, np.float32) for shape in shapes]
    _, to_tree = ravel_pytree(structure.unflatten(zeros))

    def loss(vector: Any, batch: Any) -> Any:
        return model_loss(to_tree(vector), batch)

    return loss


def pack_gradient(
    problem: Problem, vector_T: np.ndarray, batch: Any
) -> tuple[Any, np.ndarray]:
    """Return the loss and the packed gradient of a problem without a model."""
    flat_layout = layout(problem.params)
    loss, grads = problem.gradient(unpack(vector_T, flat_layout), batch)
    packed_T = np.empty_like(vector_T)
    pack(grads, packed_T)
    return loss, packed_T


def unpack_table(table_Tx1: np.ndarray, flat_layout: TreeLayout) -> Params:
    """Return the elements of a table of one column as a tree."""
    return unpack(table_Tx1[:, 0], flat_layout)
