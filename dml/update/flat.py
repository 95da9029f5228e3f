"""Updates of a server's dense vector by optax: full gradient in, new values out.

An arbitrary part of the parameters must change as it would within the full vector. So
only optimizers that treat all numbers independently, without layers or norms, can be
used.
"""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, Optimizer, apply, make

ELEMENTWISE = tuple(name for name in OPTIMIZERS if name not in ("lars", "lamb"))


class Flat:
    """A Shard of consecutive values with optax's state.

    After an update `values` is another array, which is read-only: JAX's memory.
    Gradients that begin at a multiple of 64 bytes are not copied.
    """

    def __init__(self, optimizer: Optimizer, values_RxD: np.ndarray) -> None:
        self.optimizer, self.values = optimizer, values_RxD
        # An unused second leaf: in a tree of one leaf XLA turns Adam's division by a
        # scalar into a product, which rounds twice.
        self.spare = np.zeros(1, np.float32)
        self.state = optimizer.init((values_RxD, self.spare))

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update all values; do nothing for an empty gradient."""
        rows = range(len(self.values))
        if isinstance(at, slice):
            count, is_full = len(rows[at]), rows[at] == rows
        else:
            count, is_full = len(at), np.array_equal(at, np.arange(len(rows)))
        if not count:
            return
        if not is_full:
            raise BadInput(
                f"expected all of {len(rows)} rows in order, got {count}; push full "
                "vectors, or use update.table"
            )
        if grads.shape != self.values.shape:
            raise BadInput(
                f"expected gradients of {self.values.shape}, got {grads.shape}; push a "
                "number for each value"
            )
        (values, _), self.state = apply(
            self.optimizer, (grads, self.spare), self.state, (self.values, self.spare)
        )
        self.values = np.asarray(
            values
        )  # waits, so that the memory of grads can be reused


def flat(optimizer: Optimizer, values: Any) -> Flat:
    """Return the shard of a copy of the values, RxD."""
    return Flat(optimizer, np.array(values, np.float32, order="C"))


def elementwise(name: str, learning_rate: Any) -> Optimizer:
    """Return the optimizer of that name if it treats all numbers independently."""
    if name in OPTIMIZERS and name not in ELEMENTWISE:
        raise BadInput(
            f"expected an optimizer of {', '.join(ELEMENTWISE)} on a server, got "
            f"{name!r}, which needs full layers; pass --optimizer=<one of them>"
        )
    return make(name, learning_rate)
