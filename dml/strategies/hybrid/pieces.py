"""Pieces of a part: a forward that saves activations, and a backward that reads them.

    forward     input ─→ piece 0 ─→ piece 1 ─→ output      Shapes are known from
                            │ saved    │ saved             tracing once inside
    backward    grad  ←─ piece 0 ←─ piece 1 ←─ grad        shard_map.

jax.vjp returns a function whose leaves are all arrays that the backward reads: params,
which the device stores anyway, and activations, which are saved in a slot for each
microbatch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.layered import layer_params
from dml.models.primitives import COLLECTIVES, PRODUCTS
from dml.strategies.hybrid.parts import StagePart, names
from dml.strategies.hybrid.split import SplitBackward, split_backward
from dml.types import Layer

# primitives whose results are saved, as they are expensive to recompute
SAVED_PRIMITIVES = PRODUCTS | COLLECTIVES


class Piece(NamedTuple):
    """Consecutive layers whose backward takes one tick."""

    apply: Callable[[Any, Any, Any], Any]  # (batch, params, input) -> output
    names: list[str]  # names of the params
    output: Any  # shapes of the output
    saved: list[Any]  # shapes of the saved activations
    vjp: Any  # tree structure of the function that jax.vjp returns
    # by leaf of this tree: index of the param; None: a saved activation
    params: list[int | None]
    split: SplitBackward | None = None  # if input and weight gradients are separate

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

    @property
    def deferred(self) -> list[Any]:
        """Shapes of values of the input gradient that the weight gradient reads."""
        return self.split.deferred if self.split else []

    def input_grad(self, params: Any, saved: list[Any], grad: Any) -> tuple[Any, Any]:
        """Return the gradient of the input, and the deferred values."""
        assert self.split
        return self.split.input_grad(params, saved, grad)

    def weight_grad(self, params: Any, saved: list[Any], deferred: list[Any]) -> Any:
        """Return the gradients of the params."""
        assert self.split
        return self.split.weight_grad(params, saved, deferred)


def checkpoint_layer(layer: Layer) -> Callable[..., Any]:
    """Return the function of a layer, saving only products and collectives.

    The backward recomputes norms, activation functions and softmax from products. This
    takes a third of the memory per microbatch, and a tenth more operations.
    """

    def is_saved(primitive: Any, *_: Any, **__: Any) -> bool:
        return primitive.name in SAVED_PRIMITIVES

    return jax.checkpoint(layer.apply, policy=is_saved)


def trace_pieces(
    parts: Sequence[StagePart], batch: Any, remat: bool, split: bool = False
) -> list[list[Piece]]:
    """Return the pieces of each part; called inside shard_map.

    The last layer of the model saves all activations, as its cross-entropy computes the
    gradient together with the loss.

    Args:
      parts: Parts of the model.
      batch: A microbatch.
      remat: Whether a piece saves only its input.
      split: Whether input and weight gradients are separate.
    """
    last = parts[-1].layers[-1]

    def apply(
        layers: Sequence[Layer], batch: Any, params: Any, activations: Any
    ) -> Any:
        for layer in layers:
            call = layer.apply if layer is last else checkpoint_layer(layer)
            activations = call(layer_params(layer, params), activations, batch)
        return activations

    inputs: Any = None
    pieces_by_part: list[list[Piece]] = [[] for _ in parts]
    for part, pieces in zip(parts, pieces_by_part, strict=True):
        for layers in part.pieces:
            call: Any = partial(apply, layers)
            call = jax.checkpoint(call) if remat else call
            params = part.params.pick(names(layers)).shapes
            piece = trace_piece(call, params, inputs, batch)
            if split:
                shapes = params, piece.saved, piece.output
                piece = piece._replace(split=split_backward(piece.backward, *shapes))
            pieces.append(piece)
            inputs = piece.output
    return pieces_by_part


def trace_piece(
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
    param_indices: list[int | None] = []

    def forward(params: Any, inputs: Any) -> Any:
        nonlocal structure
        output, vjp = jax.vjp(partial(apply, batch), params, inputs)
        leaves, structure = jax.tree.flatten(vjp)
        index = {id(leaf): n for n, leaf in enumerate(jax.tree.leaves(params))}
        param_indices.extend(index.get(id(leaf)) for leaf in leaves)
        return output, [leaf for leaf in leaves if id(leaf) not in index]

    output, saved = jax.eval_shape(forward, params, inputs)
    return Piece(apply, list(params), output, saved, structure, param_indices)
