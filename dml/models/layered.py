"""GRADIENT: a model made of layers, each of which can be differentiated alone.

    batch ─┬──────────┬──────────┐
    None → layer 0 → layer 1 → layer 2 → loss       params, by name, go to those
           names     names     names                layers that name them

The loss of the model is the composition of the layers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from dml.types import Layer, Model, Params


def layered(
    layers: Sequence[Layer],
    init: Callable[[Any], Params],
    metrics: Callable[[Params, Any], Mapping[str, Any]],
    scores: Callable[[Params, Any], Any],
    remat: bool = False,
) -> Model:
    """Return the model; remat computes a layer's inside again in the backward pass."""
    if remat:
        layers = [Layer(one.names, jax.checkpoint(one.apply)) for one in layers]
    return Model(init, composed(layers), metrics, tuple(layers), scores)


def composed(layers: Sequence[Layer]) -> Callable[[Params, Any], Any]:
    """Return the loss that the layers compute one after another."""

    def loss(params: Params, batch: Any) -> Any:
        activations = None
        for layer in layers:
            activations = layer.apply(read(layer, params), activations, batch)
        return activations

    return loss


def read(layer: Layer, params: Params) -> dict[str, Params]:
    """Return the params that a layer names."""
    return {name: params[name] for name in layer.names}


def first(layers: Sequence[Layer]) -> dict[str, int]:
    """Return the first layer that reads each name, the last to add to its gradient."""
    found: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name in layer.names:
            found.setdefault(name, number)
    return found
