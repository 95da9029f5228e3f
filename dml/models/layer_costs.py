"""The cost of each layer, used to balance the stages of a pipeline.

The cost of a layer is the number of floating-point operations, or the seconds, of its
forward and backward pass.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.layered import layer_params
from dml.types import Layer, Params

# (params of a layer, its input, batch) -> its output, gradients of params and input
ForwardBackward = Callable[[Any, Any, Any], Any]


def even(layers: Sequence[Layer], params: Params, batch: Any) -> list[float]:
    """Return an equal cost for every layer."""
    return [1.0] * len(layers)


def flops(layers: Sequence[Layer], params: Params, batch: Any) -> list[float]:
    """Return the floating-point operations of every layer, as counted by XLA.

    The layers are not run.
    """

    def operations(forward_backward: ForwardBackward, *shapes: Any) -> float:
        analysis = jax.jit(forward_backward).lower(*shapes).cost_analysis()
        return max(1.0, float((analysis or {}).get("flops", 1.0)))

    return [
        operations(forward_backward, *shapes)
        for forward_backward, *shapes in layer_passes(layers, params, batch)
    ]


def seconds(
    layers: Sequence[Layer], params: Params, batch: Any, repeats: int = 3
) -> list[float]:
    """Return the measured seconds of every layer: the minimum over repeats.

    Args:
      layers: Layers of a model.
      params: Params by name.
      batch: A minibatch.
      repeats: Number of measured runs.
    """

    def measure(forward_backward: ForwardBackward, *shapes: Any) -> float:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        call, durations = jax.jit(forward_backward), []
        for _ in range(1 + repeats):  # the first run compiles
            start = time.perf_counter()
            jax.block_until_ready(call(*zeros))
            durations.append(time.perf_counter() - start)
        return min(durations[1:])

    return [
        measure(forward_backward, *shapes)
        for forward_backward, *shapes in layer_passes(layers, params, batch)
    ]


COSTS = {"even": even, "flops": flops, "seconds": seconds}


def layer_passes(layers: Sequence[Layer], params: Params, batch: Any) -> Iterator[Any]:
    """Yield a function of the forward and backward pass of each layer.

    The shapes of the function's arguments follow it in the same tuple.
    """
    params, batch = jax.eval_shape(lambda *trees: trees, params, batch)
    activations: Any = None
    for layer in layers:

        def forward_backward(
            params: Any,
            activations: Any,
            batch: Any,
            apply: Callable[..., Any] = layer.apply,
        ) -> Any:
            def run(params: Any, activations: Any) -> Any:
                return apply(params, activations, batch)

            out, pullback = jax.vjp(run, params, activations)
            return out, pullback(jax.tree.map(jnp.ones_like, out))

        weights = layer_params(layer, params)
        yield forward_backward, weights, activations, batch
        activations, _ = jax.eval_shape(forward_backward, weights, activations, batch)
