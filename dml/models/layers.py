"""GRADIENT: a model made of layers, each of which can be differentiated by itself.

    batch ─┬──────────┬──────────┐
    None → layer 0 → layer 1 → layer 2 → loss       params, by name, go to those
           names     names     names                layers that name them

Layers and how they are initialised come in, a Model whose loss composes them comes out.
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
    """Make the model; remat computes a layer's inside anew in the backward pass."""
    if remat:
        layers = [Layer(one.names, jax.checkpoint(one.apply)) for one in layers]

    return Model(init, composed(layers), metrics, tuple(layers), scores)


def composed(layers: Sequence[Layer]) -> Callable[[Params, Any], Any]:
    """Return the loss that layers make one after another."""

    def loss(params: Params, batch: Any) -> Any:
        given = None
        for layer in layers:
            given = layer.apply(read(layer, params), given, batch)
        return given

    return loss


def read(layer: Layer, params: Params) -> dict[str, Params]:
    """Return the params that a layer names."""
    return {name: params[name] for name in layer.names}


def first(layers: Sequence[Layer]) -> dict[str, int]:
    """Return the first layer that reads each name: behind it its gradient is whole."""
    found: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name in layer.names:
            found.setdefault(name, number)
    return found
