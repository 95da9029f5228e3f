"""Muon (Jordan 2024): updates by the orthogonalised momentum of each matrix.

    matrices of hidden layers     momentum → Newton-Schulz iterations → update
    tables, outputs, vectors      AdamW

The update is `optax.contrib.muon`. Its Newton-Schulz iterations multiply matrices, so
the update of a matrix cannot be divided into slices; `strategies.owned` divides the
matrices of a model among ranks instead.
"""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers

from dml.types import Params

STEPS = 5  # Newton-Schulz iterations
# AdamW updates an element in the time of 400 operations of products: 2.8 ns, at 140
# GFLOP/s on one core
ADAMW = 400
# leaves with a row per token or position, which are read by index and not multiplied
TABLES = ("embedding", "positions", "segments", "tokens")


def muon(
    learning_rate: Any, decay: float | None, matrices: Any, outputs: Collection[str]
) -> optax.GradientTransformation:
    """Return optax.contrib.muon for hidden matrices, and its AdamW for other leaves.

    Args:
      learning_rate: Number or schedule, of both rules.
      decay: Weight decay of both rules; None: no decay.
      matrices: Tree -> mask of the leaves that decay.
      outputs: Names of the params of the output layer, which AdamW updates.
    """
    rule = optax.contrib.muon(
        -1.0,  # optax would decay vectors, too; the rate follows after the decay
        ns_steps=STEPS,
        muon_weight_dimension_numbers=partial(dimension_numbers, outputs),
    )
    return optax.chain(
        rule,
        optax.add_decayed_weights(decay or 0.0, matrices),
        optax.scale_by_learning_rate(learning_rate),
    )


def dimension_numbers(outputs: Collection[str], tree: Any) -> Any:
    """Return the axes of each leaf that are orthogonalised; None: AdamW updates it.

    Args:
      outputs: Names of the params of the output layer.
      tree: Params, or a tree like them.
    """
    return jax.tree_util.tree_map_with_path(partial(orthogonal_axes, outputs), tree)


def orthogonal_axes(
    outputs: Collection[str], path: Sequence[Any], leaf: Any
) -> MuonDimensionNumbers | None:
    """Return the axes of a leaf that are orthogonalised; None: AdamW updates it.

    A kernel of a convolution, HxWxIxO, is a matrix of HWI rows; leading axes of other
    kernels, such as that of experts, are batches of matrices.
    """
    names = [str(getattr(entry, "key", entry)) for entry in path]
    is_table = bool(names) and names[-1] in TABLES
    if leaf.ndim < 2 or is_table or (names and names[0] in outputs):
        return None
    if leaf.ndim == 4:
        return MuonDimensionNumbers((0, 1, 2), 3)
    return MuonDimensionNumbers(-2, -1)


def costs(outputs: Collection[str], params: Params) -> list[float]:
    """Return the operations of the update of each leaf.

    Args:
      outputs: Names of the params of the output layer.
      params: The parameters.
    """
    return [
        iterations(leaf.shape)
        if orthogonal_axes(outputs, path, leaf)
        else float(ADAMW * leaf.size)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]


def iterations(shape: Sequence[int]) -> float:
    """Return the operations of the Newton-Schulz iterations of a kernel.

    One iteration of an m x n matrix, m ≤ n, has the products x xᵀ, a a and b x.
    """
    rows = math.prod(shape[:-1]) if len(shape) == 4 else shape[-2]
    short, long = sorted((rows, shape[-1]))
    matrices = math.prod(shape) // (rows * shape[-1])
    return float(STEPS * matrices * (4 * short * short * long + 2 * short**3))
