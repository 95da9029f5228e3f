"""A Flax NNX network as a Model, with batch normalisation.

nnx.Module ─┬─ structure            static
            ├─ nnx.Param         ─→ params
            └─ nnx.BatchStat     ─→ params["statistics"]; see layers/normalisation.py
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from dml.models.layers.normalisation import drift
from dml.types import STATISTICS, BadInput, Batch, Model, Params


def nnx_model(
    network: nnx.Module,
    loss: Callable[[Any, Batch], Any],
    metrics: Callable[[Any, Batch], Mapping[str, Any]] = lambda network, batch: {},
) -> Model:
    """Return the model of a network; `init` returns the values that the network has.

    The loss is called with the network in training mode, `network.train()`. Metrics are
    called in evaluation mode, in which batch normalisation uses running statistics.

    Args:
      network: The network. Its variables are of type nnx.Param or nnx.BatchStat.
      loss: (network, batch) -> mean loss over the batch.
      metrics: (network, batch) -> means over the batch by name.

    Raises:
      BadInput: The network has variables of another type, such as those of nnx.Dropout.
    """
    states: Any = nnx.split(network, nnx.Param, nnx.BatchStat, ...)
    structure, weights, running, others = states
    check_variables(others)
    start = nnx.to_pure_dict(weights)
    if jax.tree.leaves(running):
        start = {**start, STATISTICS: nnx.to_pure_dict(running)}

    def merged(params: Params) -> Any:
        rest = {name: leaf for name, leaf in params.items() if name != STATISTICS}
        return nnx.merge(structure, rest, params.get(STATISTICS, {}))

    def training_loss(params: Params, batch: Batch) -> Any:
        copy = merged(params)
        copy.train()
        for _, part in nnx.iter_modules(copy):
            if isinstance(part, nnx.BatchNorm):
                part.momentum = 0.0  # new running statistics are those of the batch
        value = loss(copy, batch)
        after = nnx.to_pure_dict(nnx.state(copy, nnx.BatchStat))
        return value + drift(params.get(STATISTICS, {}), after)

    def measures(params: Params, batch: Batch) -> Mapping[str, Any]:
        copy = merged(params)
        copy.eval()
        return metrics(copy, batch)

    return Model(lambda key: start, training_loss, measures)


def check_variables(others: Any) -> None:
    """Raise unless there are no variables beyond params and running statistics."""
    variables = jax.tree_util.tree_leaves_with_path(others)
    if not variables:
        return
    path = jax.tree_util.keystr(variables[0][0], simple=True, separator="/")
    raise BadInput(
        f"expected variables of type nnx.Param or nnx.BatchStat, got {path}; remove "
        "nnx.Dropout and other layers with random state, because their masks would "
        "depend on the number of ranks"
    )
