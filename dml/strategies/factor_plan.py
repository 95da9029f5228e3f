"""The plan of poseidon: the exchange of each gradient of a network."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.models.backward import gradient_order
from dml.models.factors import dense_layers, path_name
from dml.strategies.loops.term_gradients import ALL
from dml.types import BadInput, Batch, Problem
from dml.wire.costs.factors import Nodes, ProductSizes, choose
from dml.wire.reducers.sufficient_factors import Columns

# Exchanges of dense layers: that with the fewest words for each layer; factors for all;
# sums by the all-reduce; sums on servers, one on each rank, with equal parts.
SCHEMES = ("hybrid", "factors", "allreduce", "server")


class FactorPlan(NamedTuple):
    """The exchange of each gradient.

    Attributes:
      kernels: Sizes of the kernels that are exchanged by factors, for one example.
      names: Names of parameters in the order of the backward pass.
      dense: The other parameters by name, with None in place of these kernels.
      dtype: Dtype of all messages.
    """

    kernels: Mapping[str, ProductSizes]
    names: list[str]
    dense: Mapping[str, Any]
    dtype: np.dtype

    def columns(self, name: str) -> dict[str, Columns]:
        """Return the columns of the kernels of a name."""
        return {
            path: Columns(sizes.inputs, sizes.outputs)
            for path, sizes in self.kernels.items()
            if name == ALL or f"{path}/".startswith(f"{name}/")
        }


def make_plan(
    problem: Problem, first: np.ndarray, size: int, scheme: str, by_layer: bool
) -> FactorPlan:
    """Choose the exchange of each kernel.

    Args:
      problem: Problem to train.
      first: Indices of the first minibatch.
      size: Number of ranks.
      scheme: One of SCHEMES.
      by_layer: Whether the backward pass runs layer by layer, if the model has layers.
    """
    if scheme not in SCHEMES:
        raise BadInput(
            f"expected a scheme of {', '.join(SCHEMES)}, got {scheme!r}; pass one "
            "of them"
        )
    kernels: dict[str, ProductSizes] = {}
    if scheme in ("hybrid", "factors"):
        kernels = example_layers(problem, first)
    if scheme == "hybrid":
        most = -(-len(first) // size)  # examples of a rank
        nodes = Nodes(size, size)
        kernels = {
            path: sizes
            for path, sizes in kernels.items()
            if size > 1  # one rank sends nothing
            and choose(sizes._replace(rows=sizes.rows * most), nodes) == "factors"
        }
    paths, tree = jax.tree_util.tree_flatten_with_path(problem.params)
    leaves = [None if path_name(path) in kernels else leaf for path, leaf in paths]
    dense, names = {ALL: jax.tree.unflatten(tree, leaves)}, [ALL]
    assert problem.model
    if by_layer and problem.model.layers:
        dense, names = dense[ALL], gradient_order(problem.model)
    dtype = np.result_type(*(leaf.dtype for _, leaf in paths))
    return FactorPlan(kernels, names, dense, dtype)


def example_layers(problem: Problem, first: np.ndarray) -> dict[str, ProductSizes]:
    """Return the sizes of kernels with factors for one example.

    Kernels whose number of rows is not proportional to that of examples are left out,
    such as those of a product of two kernels.
    """
    assert problem.model
    loss, example = problem.model.loss, problem.take(first[:1])

    def layers(examples: int) -> dict[str, ProductSizes]:
        def shape(array: Any) -> jax.ShapeDtypeStruct:
            dtype = jax.dtypes.canonicalize_dtype(np.asarray(array).dtype)
            return jax.ShapeDtypeStruct((examples, *np.shape(array)[1:]), dtype)

        shapes: Batch = jax.tree.map(shape, example)
        return dense_layers(loss, problem.params, shapes)

    one, two = layers(1), layers(2)
    return {
        path: sizes for path, sizes in one.items() if two[path].rows == 2 * sizes.rows
    }
