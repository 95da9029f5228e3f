"""A model made of layers, each of which can be differentiated separately.

    batch ─┬──────────┬──────────┐
    None → layer 0 → layer 1 → layer 2 → loss       a layer reads the params that it
           names     names     names                names

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
    """Return the model of these layers.

    Args:
      layers: Layers; the last returns the loss.
      init: Random key -> params by name.
      metrics: (params, batch) -> means over the batch by name.
      scores: (params, inputs) -> logits.
      remat: Whether the backward pass recomputes the inside of each layer.
    """
    if remat:
        layers = [Layer(layer.names, jax.checkpoint(layer.apply)) for layer in layers]
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
    """Return the number of the first layer that reads each name.

    That layer is the last one that adds to the gradient of these params.
    """
    number_of: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name in layer.names:
            number_of.setdefault(name, number)
    return number_of
