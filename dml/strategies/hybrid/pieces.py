"""Pieces of a part: a forward that saves activations, and a backward that reads them.

    input ──→ piece 0 ──→ piece 1 ──→ output     shapes are found by tracing once
                 ╰ saved ╯   ╰ saved ╯           inside shard_map, without computing

jax.vjp returns a function whose leaves are all that the backward reads: params, which a
device has anyway, and saved activations, which have a slot for each microbatch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.layered import layer_params
from dml.strategies.hybrid.parts import Part, names
from dml.types import Layer

SAVED = {  # primitives that are expensive to recompute: products and collectives
    *("dot_general", "conv_general_dilated", "psum", "pmax", "all_gather"),
    *("reduce_scatter", "all_to_all", "ppermute"),
}


class Piece(NamedTuple):
    """Consecutive layers whose backward takes one tick."""

    apply: Callable[[Any, Any, Any], Any]  # batch, params, input -> output
    names: list[str]  # of the params
    output: Any  # shapes
    saved: list[Any]  # shapes of the saved activations
    vjp: Any  # tree structure of the function that jax.vjp returns
    params: list[int | None]  # by leaf: index of the param; None: a saved activation

    def forward(self, params: Any, inputs: Any, batch: Any) -> tuple[Any, list[Any]]:
        """Return the output and the saved activations."""
        output, vjp = jax.vjp(partial(self.apply, batch), params, inputs)
        leaves = zip(jax.tree.leaves(vjp), self.params, strict=True)
        return output, [leaf for leaf, param in leaves if param is None]

    def backward(self, params: Any, saved: list[Any], grad: Any) -> tuple[Any, Any]:
        """Return the gradients of params and input, from the gradient of the output."""
        weights, activations = jax.tree.leaves(params), iter(saved)
        leaves = [next(activations) if n is None else weights[n] for n in self.params]
        return self.vjp.unflatten(leaves)(grad)


def thrifty(layer: Layer) -> Callable[..., Any]:
    """Return the layer's function; it saves only products and collectives.

    The backward recomputes norms, activations and softmax from products. It takes a
    third of the memory per microbatch and a tenth more operations.
    """

    def is_saved(primitive: Any, *_: Any, **__: Any) -> bool:
        return primitive.name in SAVED

    return jax.checkpoint(layer.apply, policy=is_saved)


def traced(parts: Sequence[Part], batch: Any, remat: bool) -> list[list[Piece]]:
    """Return the pieces of each part, inside shard_map.

    With remat a piece saves its input only. The last layer of the model computes the
    gradient together with the loss, and saves everything.
    """
    last = parts[-1].layers[-1]

    def apply(
        layers: Sequence[Layer], batch: Any, params: Any, activations: Any
    ) -> Any:
        for layer in layers:
            call = layer.apply if layer is last else thrifty(layer)
            activations = call(layer_params(layer, params), activations, batch)
        return activations

    inputs: Any = None
    pieces_of: list[list[Piece]] = [[] for _ in parts]
    for part, pieces in zip(parts, pieces_of, strict=True):
        for layers in part.pieces:
            call: Any = partial(apply, layers)
            call = jax.checkpoint(call) if remat else call
            params = part.params.pick(names(layers)).shapes
            pieces.append(piece(call, params, inputs, batch))
            inputs = pieces[-1].output
    return pieces_of


def piece(
    apply: Callable[[Any, Any, Any], Any], params: Any, inputs: Any, batch: Any
) -> Piece:
    """Trace a function; return its Piece.

    Args:
      apply: (batch, params, input) -> output.
      params: Shapes of the params.
      inputs: Shapes of the input.
      batch: A microbatch.
    """
    structure: Any = None
    param_of: list[int | None] = []

    def once(params: Any, inputs: Any) -> Any:
        nonlocal structure
        output, vjp = jax.vjp(partial(apply, batch), params, inputs)
        leaves, structure = jax.tree.flatten(vjp)
        known = {id(leaf): n for n, leaf in enumerate(jax.tree.leaves(params))}
        param_of.extend(known.get(id(leaf)) for leaf in leaves)
        return output, [leaf for leaf in leaves if id(leaf) not in known]

    output, saved = jax.eval_shape(once, params, inputs)
    return Piece(apply, list(params), output, saved, structure, param_of)
