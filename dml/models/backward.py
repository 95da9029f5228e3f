"""The backward pass layer by layer, so that gradients can be sent before it ends.

forward   layer 0 → layer 1 → layer 2 → loss
backward  layer 0 ← layer 1 ← layer 2 ← 1        XLA computes later gradients while
             3         2         1   gradients   the caller sends earlier ones
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.factors import factored
from dml.models.gradient import add_scaled
from dml.models.layered import first_readers, layer_params
from dml.types import Batch, Grads, Model, Params


def gradient_order(model: Model) -> list[str]:
    """Return the names of params in the order in which gradients are complete."""
    first_layer = first_readers(model.layers)
    return sorted(first_layer, key=lambda name: -first_layer[name])


def backward(
    model: Model,
    params: Params,
    batch: Batch,
    kernels: frozenset[str] = frozenset(),
) -> tuple[Any, Iterator[tuple[str, Grads]]]:
    """Return the loss, and names with gradients, in the order of `gradient_order`.

    All layers are dispatched before the function returns; JAX may still be computing
    the arrays.

    Args:
      model: A model with layers.
      params: Its params, by name.
      batch: The minibatch.
      kernels: Paths of the kernels, each of one layer, whose gradients are Factors.
    """
    activations: Any = None
    pullbacks = []
    for layer in model.layers:
        activations, pullback = _forward(
            layer.apply, layer_params(layer, params), activations, batch
        )
        pullbacks.append(pullback)
    return activations, _gradients(model.layers, pullbacks, activations, kernels)


def _gradients(
    layers: Any, pullbacks: list[Any], loss: jax.Array, kernels: frozenset[str]
) -> Iterator[tuple[str, Grads]]:
    """Return names with complete gradients, from the last layer to the first.

    If several layers read the same params, the gradient of these params is complete
    after the backward pass of the first of these layers.
    """
    first_layer = first_readers(layers)
    partial_grads: dict[str, Grads] = {}
    complete: list[tuple[str, Grads]] = []
    incoming: Any = ones(loss)
    for index in reversed(range(len(layers))):
        grads, incoming = pull_back(pullbacks.pop(), incoming, kernels)
        for name, grad in grads.items():
            if name in partial_grads:
                grad = add_scaled(partial_grads.pop(name), grad, 1)
            if first_layer[name] == index:
                complete.append((name, grad))
            else:
                partial_grads[name] = grad
    return iter(complete)


def run_forward(
    apply: Callable[..., Any], params: Params, activations: Any, batch: Batch
) -> tuple[Any, Any]:
    """Return the output of a layer, and its pullback."""
    return jax.vjp(
        lambda params, activations: apply(params, activations, batch),
        params,
        activations,
    )


# `apply` is a static argument: each layer is compiled once for all steps.
_forward = jax.jit(run_forward, static_argnums=0)


@partial(jax.jit, static_argnums=2)
def pull_back(
    pullback: Any, incoming: Any, kernels: frozenset[str] = frozenset()
) -> tuple[dict[str, Grads], Any]:
    """Return the gradients of a layer's params and of its input.

    Args:
      pullback: Function that jax.vjp returned.
      incoming: Gradient of the layer's output.
      kernels: Paths of the kernels whose gradients are Factors.
    """

    def gradients(pullback: Any, incoming: Any) -> tuple[dict[str, Grads], Any]:
        return pullback(incoming)

    call = factored(gradients, kernels) if kernels else gradients
    return call(pullback, incoming)


@jax.jit
def ones(loss: jax.Array) -> jax.Array:
    return jnp.ones_like(loss)
