"""The cost of each layer, by which the stages of a pipeline are balanced.

The cost is the number of operations, or the seconds, of a layer's forward and backward.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layered import read
from dml.types import Layer, Params

Both = Callable[[Any, Any, Any], Any]  # params, input, batch -> output, gradients


def even(layers: Sequence[Layer], params: Params, batch: Any) -> list[float]:
    """Return an equal cost for every layer."""
    return [1.0] * len(layers)


def flops(layers: Sequence[Layer], params: Params, batch: Any) -> list[float]:
    """Return the operations of every layer by XLA's count; nothing is computed."""

    def operations(both: Both, *like: Any) -> float:
        analysis = jax.jit(both).lower(*like).cost_analysis()
        return max(1.0, float((analysis or {}).get("flops", 1.0)))

    return [operations(both, *like) for both, *like in each(layers, params, batch)]


def seconds(
    layers: Sequence[Layer], params: Params, batch: Any, repeats: int = 3
) -> list[float]:
    """Return the seconds of every layer on this device, the least of some repeats.

    Args:
      layers: Layers of a model.
      params: Params by name.
      batch: A minibatch.
      repeats: Number of measured runs.
    """

    def took(both: Both, *like: Any) -> float:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        call, spent = jax.jit(both), []
        for _ in range(1 + repeats):  # the first one compiles
            begun = time.perf_counter()
            jax.block_until_ready(call(*zeros))
            spent.append(time.perf_counter() - begun)
        return min(spent[1:])

    return [took(both, *like) for both, *like in each(layers, params, batch)]


COSTS = {"even": even, "flops": flops, "seconds": seconds}


def each(layers: Sequence[Layer], params: Params, batch: Any) -> Iterator[Any]:
    """Yield every layer's forward and backward, and the shapes of their arguments."""
    params, batch = jax.eval_shape(lambda *trees: trees, params, batch)
    activations: Any = None
    for layer in layers:

        def both(
            params: Any,
            activations: Any,
            batch: Any,
            apply: Callable[..., Any] = layer.apply,
        ) -> Any:
            def run(params: Any, activations: Any) -> Any:
                return apply(params, activations, batch)

            out, back = jax.vjp(run, params, activations)
            return out, back(jax.tree.map(jnp.ones_like, out))

        weights = read(layer, params)
        yield both, weights, activations, batch
        activations, _ = jax.eval_shape(both, weights, activations, batch)
