"""Snapshots of a state: copies of its arrays in the memory of the host.

The state of a step is valid until the next step only: an optimizer may reuse its
buffers. A snapshot with buffers stays valid, and can be written during later steps.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import jax
import numpy as np


class Snapshot(NamedTuple):
    """The arrays of a state.

    Attributes:
      arrays: Arrays by the path of the leaf; random keys as their data.
      keys: Implementation of each random key, such as threefry2x32.
    """

    arrays: Mapping[str, np.ndarray]
    keys: Mapping[str, str]


def snapshot(
    state: Any, buffers: MutableMapping[str, np.ndarray] | None = None
) -> Snapshot:
    """Return the arrays of a state.

    Args:
      state: A tree of arrays, random keys and numbers.
      buffers: Buffers of an earlier snapshot that is no longer used, by leaf; new
        buffers are added. Reused buffers are written faster than new memory. Without
        buffers, arrays are not copied if they are in the memory of the host.
    """
    leaves = leaves_by_path(state)
    arrays = {name: _array(leaf) for name, leaf in leaves.items()}
    if buffers is not None:
        arrays = {name: _copy(array, buffers, name) for name, array in arrays.items()}
    return Snapshot(
        arrays,
        {
            name: str(jax.random.key_impl(leaf))
            for name, leaf in leaves.items()
            if is_key(leaf)
        },
    )


def _copy(
    array: np.ndarray, buffers: MutableMapping[str, np.ndarray], name: str
) -> np.ndarray:
    buffer = buffers.get(name)
    if buffer is None or (buffer.shape, buffer.dtype) != (array.shape, array.dtype):
        buffer = buffers[name] = np.empty(array.shape, array.dtype)
    np.copyto(buffer, array)
    return buffer


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves by their paths, such as optimizer/0/mu/dense/kernel."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _array(leaf: Any) -> np.ndarray:
    return np.asarray(
        jax.device_get(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    )


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is a random key, or its shape and dtype."""
    dtype = getattr(leaf, "dtype", np.dtype(int))
    return jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
