"""Leaves of pytrees by their paths, such as "['block_0']['qkv']['kernel']"."""

from collections.abc import Mapping
from typing import Any

import jax


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their paths, in order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def replace_leaves(tree: Any, leaves: Mapping[str, Any]) -> Any:
    """Return the tree with these leaves in place of its leaves of equal paths."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaves.get(jax.tree_util.keystr(path), leaf), tree
    )
