"""WIRE, first and last step: a pytree in, one flat vector out, and back."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm


class Layout(NamedTuple):
    """How the leaves of a tree lie in a flat buffer."""

    treedef: Any
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[np.dtype]
    length: int


def layout(tree: Any) -> Layout:
    """Describe a tree of arrays."""
    import jax

    leaves, treedef = jax.tree.flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    dtypes = [np.dtype(leaf.dtype) for leaf in leaves]
    return Layout(treedef, shapes, dtypes, sum(map(math.prod, shapes)))


def pack(tree: Any, buffer: np.ndarray) -> None:
    """Write the leaves of tree one after another into buffer."""
    import jax

    start = 0
    for leaf in map(np.asarray, jax.tree.leaves(tree)):
        buffer[start : start + leaf.size] = leaf.ravel()
        start += leaf.size


def unpack(buffer: np.ndarray, layout: Layout) -> Any:
    """Return the tree that lies in buffer, as copies."""
    import jax

    leaves, start = [], 0
    for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True):
        stop = start + math.prod(shape)
        leaves.append(buffer[start:stop].reshape(shape).astype(dtype))
        start = stop
    return jax.tree.unflatten(layout.treedef, leaves)


def allocate(comm: Comm, length: int, dtype: Any) -> np.ndarray:
    """Return memory for a buffer."""
    return np.zeros(length, dtype)
