"""Checkpoints of trees of arrays, random keys and numbers, such as optimizer states."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dml.runs import archive, checkpoints
from dml.runs.snapshots import Snapshot, is_key, leaves_by_path, snapshot


def save(
    folder: Path, number: int, state: Any, rules: Mapping[str, Any], keep: int = 2
) -> None:
    """Save a state as step-<number>.npz, as `checkpoints.write` does; rank 0 only.

    Args:
      folder: Folder of all checkpoints of the run.
      number: Number of the step.
      state: A tree of arrays, random keys and numbers.
      rules: Flags on which the result of the run depends.
      keep: Number of checkpoints to keep.
    """
    write(folder, number, snapshot(state), rules, keep)


def write(
    folder: Path,
    number: int,
    snapshot: Snapshot,
    rules: Mapping[str, Any],
    keep: int = 2,
) -> None:
    """Write a snapshot as step-<number>.npz, as `save` does; rank 0 only."""
    path = folder / f"step-{number}.npz"
    checkpoints.write(path, snapshot.arrays, rules, keep, keys=dict(snapshot.keys))


def load(
    folder: Path,
    rules: Mapping[str, Any],
    like: Any,
    warn: Callable[[str], object],
    free: Collection[str] = (),
) -> tuple[int, Any]:
    """Return the number and the state of the last complete checkpoint.

    Args:
      folder: Folder of all checkpoints of the run.
      rules: Flags on which the result depends; BadInput is raised if the saved flags
        differ.
      like: A tree of arrays, or of their shapes and dtypes, like the saved state.
      warn: Called with a message about broken checkpoints, if there are any.
      free: Rules that may differ.
    """
    leaves = leaves_by_path(like)
    expected = {name: archive.shape_text(stored(leaf)) for name, leaf in leaves.items()}
    found = checkpoints.load(folder, rules, expected, warn, free)
    restored = [
        restore(found.arrays[name], leaf, found.description["keys"].get(name))
        for name, leaf in leaves.items()
    ]
    return found.number, jax.tree.unflatten(jax.tree.structure(like), restored)


def stored(leaf: Any) -> Any:
    """Return the shape and dtype of the array that stores a leaf."""
    if is_key(leaf):
        return jax.eval_shape(jax.random.key_data, leaf)
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def restore(array: np.ndarray, leaf: Any, key: str | None) -> Any:
    """Return a leaf from its array.

    Args:
      array: The array.
      leaf: Leaf of a tree like the saved one.
      key: Implementation of a random key; None for other leaves.
    """
    if key:
        return jax.random.wrap_key_data(jax.device_put(array), impl=key)
    return array if hasattr(leaf, "dtype") else type(leaf)(array)  # a Python number


def shapes(folder: Path, key: str) -> list[Any]:
    """Return the shapes and dtypes of the leaves under a key of the last checkpoint.

    The state must be a mapping. Without a readable checkpoint, the list is empty.
    """
    return [
        jax.ShapeDtypeStruct(*archive.parse_shape(text))
        for name, text in checkpoints.shapes(folder).items()
        if name.startswith(f"{key}/")
    ]
