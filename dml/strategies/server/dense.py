"""A dense model as a table of one column: every minibatch touches all of its rows.

A Model, its params and data in, a Problem out; a table goes back to params.
"""

from collections.abc import Iterator

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from dml.data.minibatches import take
from dml.models.gradient import gradient
from dml.types import BadInput, Batch, Model, Params, Problem
from dml.wire.buffers import layout, pack, unpack

BLOCK = 1024  # examples that are evaluated at once
MOST = 8192  # training examples that the objective is the mean of


def problem(model: Model, params: Params, training: Batch, held_out: Batch) -> Problem:
    """Make the problem; its objective is the mean loss of MOST training examples."""
    lies = layout(params)
    if set(lies.dtypes) != {np.dtype(np.float32)}:
        kinds = ", ".join(sorted({str(dtype) for dtype in lies.dtypes}))
        raise BadInput(f"expected params of float32, got {kinds}; cast them")
    start_Tx1 = np.empty((lies.length, 1), np.float32)
    pack(params, start_Tx1[:, 0])
    whole = slice(0, lies.length)
    _, tree = ravel_pytree(params)

    # Flattening is compiled with the rest: the same bits, and no copy of each leaf.
    def loss(vector: jax.Array, batch: Batch) -> jax.Array:
        return model.loss(tree(vector), batch)

    def grads(
        table_Tx1: np.ndarray, numbers: np.ndarray, rows: np.ndarray | slice
    ) -> tuple[float, np.ndarray]:
        if not len(numbers):  # a worker's part of a small minibatch
            return 0.0, np.zeros_like(start_Tx1[rows])
        lost, found = gradient(loss, table_Tx1[:, 0], take(training, numbers))
        return float(lost), np.array(found)[:, None]  # JAX's own memory is read-only

    @jax.jit
    def lost(vector: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return {"objective": loss(vector, batch)}

    @jax.jit
    def scored(vector: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return dict(model.metrics(tree(vector), batch))

    count = len(training.targets)
    some = take(training, np.linspace(0, count - 1, min(count, MOST)).astype(int))

    def evaluate(table_Tx1: np.ndarray) -> dict[str, float]:
        sums: dict[str, float] = {}
        for measure, data in ((lost, some), (scored, held_out)):
            for block in _blocks(data):
                for name, mean in measure(table_Tx1[:, 0], block).items():
                    share = len(block.targets) / len(data.targets)
                    sums[name] = sums.get(name, 0.0) + share * float(mean)
        return sums

    return Problem(
        start_Tx1, len(training.targets), lambda numbers: whole, grads, evaluate
    )


def unpacked(table_Tx1: np.ndarray, params: Params) -> Params:
    """Return the table's numbers in the shape of params."""
    return unpack(table_Tx1[:, 0], layout(params))


def _blocks(data: Batch) -> Iterator[Batch]:
    """Yield all examples, so many at once: two shapes, so two compilations."""
    for start in range(0, len(data.targets), BLOCK):
        yield take(data, np.arange(start, min(start + BLOCK, len(data.targets))))
