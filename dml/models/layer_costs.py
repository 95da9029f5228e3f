"""The cost of each layer, used to balance the stages of a pipeline.

The cost is the number of operations, or the seconds, of a layer's forward and backward
pass.
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

    def operations(both: Both, *shapes: Any) -> float:
        analysis = jax.jit(both).lower(*shapes).cost_analysis()
        return max(1.0, float((analysis or {}).get("flops", 1.0)))

    return [operations(both, *shapes) for both, *shapes in each(layers, params, batch)]


def seconds(
    layers: Sequence[Layer], params: Params, batch: Any, repeats: int = 3
) -> list[float]:
    """Return the seconds of every layer on this device: the minimum over repeats.

    Args:
      layers: Layers of a model.
      params: Params by name.
      batch: A minibatch.
      repeats: Number of measured runs.
    """

    def measure(both: Both, *shapes: Any) -> float:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        call, durations = jax.jit(both), []
        for _ in range(1 + repeats):  # the first run compiles
            start = time.perf_counter()
            jax.block_until_ready(call(*zeros))
            durations.append(time.perf_counter() - start)
        return min(durations[1:])

    return [measure(both, *shapes) for both, *shapes in each(layers, params, batch)]


COSTS = {"even": even, "flops": flops, "seconds": seconds}


def each(layers: Sequence[Layer], params: Params, batch: Any) -> Iterator[Any]:
    """Yield, for every layer, a function of both passes and its arguments' shapes."""
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

            out, pullback = jax.vjp(run, params, activations)
            return out, pullback(jax.tree.map(jnp.ones_like, out))

        weights = read(layer, params)
        yield both, weights, activations, batch
        activations, _ = jax.eval_shape(both, weights, activations, batch)
