"""GRADIENT: the backward pass layer by layer, so that first gradients are sent early.

forward   layer 0 → layer 1 → layer 2 → loss
backward  layer 0 ← layer 1 ← layer 2 ← 1        XLA computes later gradients while
             3         2         1   gradients    the caller sends earlier ones
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.models.gradient import plus
from dml.models.layered import first, read
from dml.types import Batch, Grads, Model, Params


def order(model: Model) -> list[str]:
    """Return the names of params in the order in which their gradients are complete."""
    whole = first(model.layers)
    return sorted(whole, key=lambda name: -whole[name])


def backward(
    model: Model, params: Params, batch: Batch
) -> tuple[Any, Iterator[tuple[str, Grads]]]:
    """Return the loss, and each name with its gradient, in the order of `order`.

    All layers are dispatched at once: the arrays may still be in computation.
    """
    given: Any = None
    backs = []
    for layer in model.layers:
        given, back = _forward(layer.apply, read(layer, params), given, batch)
        backs.append(back)
    return given, _back(model.layers, backs, given)


def _back(
    layers: Any, backs: list[Any], loss: jax.Array
) -> Iterator[tuple[str, Grads]]:
    whole, open_grads = first(layers), dict[str, Grads]()
    done: list[tuple[str, Grads]] = []
    towards: Any = _one(loss)
    for number in reversed(range(len(layers))):
        grads, towards = _backward(backs.pop(), towards)
        for name, found in grads.items():
            if name in open_grads:
                found = plus(open_grads.pop(name), found, 1)
            if whole[name] == number:
                done.append((name, found))
            else:
                open_grads[name] = found
    return iter(done)


# A layer's function is static: one compilation for each, whatever the step.
@partial(jax.jit, static_argnums=0)
def _forward(
    apply: Callable[..., Any], params: Params, given: Any, batch: Batch
) -> tuple[Any, Any]:
    return jax.vjp(lambda params, given: apply(params, given, batch), params, given)


@jax.jit
def _backward(back: Any, towards: Any) -> tuple[dict[str, Grads], Any]:
    return back(towards)


@jax.jit
def _one(loss: jax.Array) -> jax.Array:
    return jnp.ones_like(loss)
