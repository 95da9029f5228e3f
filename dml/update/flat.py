"""Updates of a part of a dense vector by optax: its gradient in, new values out.

A server, or a rank of `operation`, stores a part of the parameters, whose update must
be the same as in the full vector. Only elementwise optimizers can be used, not lars and
lamb, which depend on the norms of layers.
"""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, Optimizer, apply, make

BY_LAYER = ("lars", "lamb", "muon")  # need norms or products of full layers
ELEMENTWISE = tuple(name for name in OPTIMIZERS if name not in BY_LAYER)


class Flat:
    """A Shard of consecutive values with optax's state.

    An update replaces `values` by a new array, which is memory of JAX and read-only.
    Gradients whose address is a multiple of 64 bytes are not copied.
    """

    def __init__(self, optimizer: Optimizer, values_RxD: np.ndarray) -> None:
        self.optimizer, self.values = optimizer, values_RxD
        # An unused second leaf: in a tree of one leaf XLA turns Adam's division by a
        # scalar into a product, which rounds twice.
        self.unused = np.zeros(1, np.float32)
        self.state = optimizer.init((values_RxD, self.unused))

    def update(
        self, rows: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Update all values; do nothing for an empty gradient."""
        all_rows = range(len(self.values))
        if isinstance(rows, slice):
            count = len(all_rows[rows])
            is_full = all_rows[rows] == all_rows
        else:
            count = len(rows)
            is_full = np.array_equal(rows, np.arange(len(all_rows)))
        if not count:
            return
        if not is_full:
            raise BadInput(
                f"expected all of {len(all_rows)} rows in order, got {count}; push "
                "full vectors, or use update.table"
            )
        if grads.shape != self.values.shape:
            raise BadInput(
                f"expected gradients of shape {self.values.shape}, got {grads.shape}; "
                "push one element for each value"
            )
        (values, _), self.state = apply(
            self.optimizer,
            (grads, self.unused),
            self.state,
            (self.values, self.unused),
        )
        # waits for JAX, so that the caller can reuse the memory of grads
        self.values = np.asarray(values)


def flat(optimizer: Optimizer, values: Any) -> Flat:
    """Return a shard with a copy of the values, RxD."""
    return Flat(optimizer, np.array(values, np.float32, order="C"))


def elementwise(name: str, learning_rate: Any) -> Optimizer:
    """Return the optimizer of that name; raise BadInput if it is not elementwise."""
    if name in OPTIMIZERS and name not in ELEMENTWISE:
        raise BadInput(
            f"expected an optimizer of {', '.join(ELEMENTWISE)} on a server, got "
            f"{name!r}, which needs full layers; pass --optimizer=<one of them>"
        )
    return make(name, learning_rate)
