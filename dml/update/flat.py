"""UPDATE of a server's dense vector: its whole gradient in, new values out, by optax.

A part of the parameters, cut anywhere, must move as it would in the whole: so only
optimizers that treat every number alone, and look at no layer and no norm.
"""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.update.dense import OPTIMIZERS, Optimizer, apply, make

ELEMENTWISE = tuple(name for name in OPTIMIZERS if name not in ("lars", "lamb"))


class Flat:
    """Values of one run of memory and optax's state; a server's Shard for all of them.

    After an update values is another array, which is read-only: JAX's own memory. It
    need not copy gradients that begin at a multiple of 64 bytes.
    """

    def __init__(self, optimizer: Optimizer, values_RxD: np.ndarray) -> None:
        self.optimizer, self.values = optimizer, values_RxD
        # XLA turns Adam's division by a scalar into a product where the tree has one
        # leaf only, and rounds twice: so there is a second one, of a number not used.
        self.spare = np.zeros(1, np.float32)
        self.state = optimizer.init((values_RxD, self.spare))

    def update(
        self, at: np.ndarray | slice, grads: np.ndarray, share: float = 1.0
    ) -> None:
        """Step on all values at once; on none, when a gradient of none comes."""
        every = range(len(self.values))
        if isinstance(at, slice):
            count, whole = len(every[at]), every[at] == every
        else:
            count, whole = len(at), np.array_equal(at, np.arange(len(every)))
        if not count:
            return
        if not whole:
            raise BadInput(
                f"expected all of {len(every)} rows in order, got {count}; push whole "
                "vectors, or keep them in update.table"
            )
        if grads.shape != self.values.shape:
            raise BadInput(
                f"expected gradients of {self.values.shape}, got {grads.shape}; push a "
                "number for each value"
            )
        (values, _), self.state = apply(
            self.optimizer, (grads, self.spare), self.state, (self.values, self.spare)
        )
        self.values = np.asarray(values)  # waits: grads' memory may be used again


def flat(optimizer: Optimizer, values: Any) -> Flat:
    """Make the shard of copied values, RxD."""
    return Flat(optimizer, np.array(values, np.float32, order="C"))


def elementwise(name: str, learning_rate: Any) -> Optimizer:
    """Return the optimizer of that name, if it treats every number alone."""
    if name in OPTIMIZERS and name not in ELEMENTWISE:
        raise BadInput(
            f"expected an optimizer of {', '.join(ELEMENTWISE)} on a server, got "
            f"{name!r}, which needs whole layers; pass --optimizer=<one of them>"
        )
    return make(name, learning_rate)
