"""Batch normalisation (Ioffe 2015) whose running statistics are params.

The loss normalises by the statistics of the batch; under shard_map, by those of each
device's examples (Goyal 2017). Metrics use the running statistics, which are params
under the name "statistics". The loss has a term of value 0 whose gradient is running
statistics - batch statistics. Replicas average this gradient like any other, and the
optimizer, which subtracts a share of it, computes the exponential mean.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.types import STATISTICS, Params

KEPT = "batch_stats"  # flax's name of running statistics


def norm(module: linen.Module, dtype: Any) -> Callable[..., linen.Module]:
    """Return the module's normalisation; in training it uses batch statistics."""
    # momentum 0: flax's new running statistics are those of the batch
    return partial(
        linen.BatchNorm,
        use_running_average=not module.is_mutable_collection(KEPT),
        momentum=0.0,
        dtype=dtype,
    )


def folded(variables: Any) -> Params:
    """Return flax's variables as params, including the statistics."""
    if KEPT not in variables:
        return variables["params"]
    return {**variables["params"], STATISTICS: variables[KEPT]}


def unfolded(params: Params) -> dict[str, Any]:
    """Return flax's variables."""
    weights = {name: leaf for name, leaf in params.items() if name != STATISTICS}
    return {"params": weights, KEPT: params.get(STATISTICS, {})}


def trained(network: linen.Module, params: Params, inputs: Any) -> tuple[Any, Any]:
    """Return the outputs in training, and a term of the loss with value 0."""
    outputs, changed = network.apply(unfolded(params), inputs, mutable=[KEPT])
    return outputs, drift(params.get(STATISTICS, {}), changed.get(KEPT, {}))


def settled(network: linen.Module, params: Params, inputs: Any) -> Any:
    """Return the outputs computed with running statistics."""
    return network.apply(unfolded(params), inputs)


def drift(running: Any, batch: Any) -> jax.Array:
    """Return 0, whose gradient with respect to `running` is running - batch."""
    constant = jax.lax.stop_gradient

    def term(mean: jax.Array, batch_mean: jax.Array) -> jax.Array:
        return jnp.sum((mean - constant(mean)) * constant(mean - batch_mean))

    return sum(jax.tree.leaves(jax.tree.map(term, running, batch)), jnp.float32(0))
