"""Batch normalisation (Ioffe 2015) whose running statistics are params.

The loss normalises by the statistics of the batch; under shard_map, by the statistics
of each device's examples (Goyal 2017). Metrics use the running statistics, which are
params under the name "statistics". The loss has a term of value 0 whose gradient is
running statistics - batch statistics. Replicas average this gradient like any other.
The optimizer subtracts a fraction of it: the running statistics are then exponential
means of the batch statistics.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.types import STATISTICS, Params

BATCH_STATS = "batch_stats"  # flax's name of running statistics


def norm(module: linen.Module, dtype: Any) -> Callable[..., linen.Module]:
    """Return a constructor of the module's batch normalisations.

    They use batch statistics in training, running statistics otherwise.
    """
    # momentum 0: flax's new running statistics are the statistics of the batch
    return partial(
        linen.BatchNorm,
        use_running_average=not module.is_mutable_collection(BATCH_STATS),
        momentum=0.0,
        dtype=dtype,
    )


def params_of(variables: Any) -> Params:
    """Return flax's variables as params, including the statistics."""
    if BATCH_STATS not in variables:
        return variables["params"]
    return {**variables["params"], STATISTICS: variables[BATCH_STATS]}


def variables_of(params: Params) -> dict[str, Any]:
    """Return flax's variables."""
    weights = {name: leaf for name, leaf in params.items() if name != STATISTICS}
    return {"params": weights, BATCH_STATS: params.get(STATISTICS, {})}


def apply_training(
    network: linen.Module, params: Params, inputs: Any
) -> tuple[Any, Any]:
    """Return the outputs for batch statistics, and `drift` to be added to the loss."""
    outputs, changed = network.apply(
        variables_of(params), inputs, mutable=[BATCH_STATS]
    )
    return outputs, drift(params.get(STATISTICS, {}), changed.get(BATCH_STATS, {}))


def apply_running(network: linen.Module, params: Params, inputs: Any) -> Any:
    """Return the outputs for running statistics."""
    return network.apply(variables_of(params), inputs)


def drift(running: Any, batch: Any) -> jax.Array:
    """Return 0, whose gradient with respect to `running` is running - batch."""
    constant = jax.lax.stop_gradient

    def term(mean: jax.Array, batch_mean: jax.Array) -> jax.Array:
        return jnp.sum((mean - constant(mean)) * constant(mean - batch_mean))

    return sum(jax.tree.leaves(jax.tree.map(term, running, batch)), jnp.float32(0))
