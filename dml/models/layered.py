"""A model made of layers, each of which can be differentiated separately.

    batch ─┬──────────┬─────────┐
    None → layer 0 → layer 1 → layer 2 → loss
           params    params    params         those that the layer names

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
      remat: Whether the backward pass recomputes the activations inside each layer.
    """
    if remat:
        layers = [Layer(layer.names, jax.checkpoint(layer.apply)) for layer in layers]
    return Model(init, compose(layers), metrics, tuple(layers), scores)


def compose(layers: Sequence[Layer]) -> Callable[[Params, Any], Any]:
    """Return the loss that the layers compute one after another."""

    def loss(params: Params, batch: Any) -> Any:
        activations = None
        for layer in layers:
            activations = layer.apply(layer_params(layer, params), activations, batch)
        return activations

    return loss


def layer_params(layer: Layer, params: Params) -> dict[str, Params]:
    """Return the params that a layer reads, by name."""
    return {name: params[name] for name in layer.names}


def first_readers(layers: Sequence[Layer]) -> dict[str, int]:
    """Return, for each name of params, the index of the first layer that reads them.

    In the backward pass, this layer is the last that adds to their gradient.
    """
    first_layer: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for name in layer.names:
            first_layer.setdefault(name, index)
    return first_layer
