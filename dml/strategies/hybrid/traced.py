"""A part of a model, traced: what comes in, what goes out, what a backward keeps.

    given ──→ piece 0 ──→ piece 1 ──→ gives      shapes, found by tracing once inside
                 ╰ kept ╯    ╰ kept ╯            shard_map; nothing is computed

A Part and the shapes of what it is given in, its pieces traced out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from dml.models.layers import read
from dml.strategies.hybrid.parts import Part, names
from dml.types import Layer
from dml.wire.mesh.packed import Packing, packing, sums

KEPT = {  # what is worth its memory: products, and what has come from other devices
    *("dot_general", "conv_general_dilated", "psum", "pmax", "all_gather"),
    *("reduce_scatter", "all_to_all", "ppermute"),
}


class Piece(NamedTuple):
    """Layers whose backward takes one tick."""

    run: Callable[[Any, Any, Any], Any]  # batch, params, given -> what it gives
    names: tuple[str, ...]
    gives: Packing
    back: Any  # the tree of jax.vjp's function
    weights: tuple[
        int | None, ...
    ]  # of its leaves: which param it is, or None: is kept
    kept: Packing

    def forward(self, params: Any, given: Any, batch: Any) -> tuple[Any, list[Any]]:
        """Return what it gives, and what its backward needs besides its params."""
        out, back = jax.vjp(partial(self.run, batch), params, given)
        leaves = jax.tree.leaves(back)
        pairs = zip(leaves, self.weights, strict=True)
        return out, [leaf for leaf, weight in pairs if weight is None]

    def backward(self, params: Any, kept: list[Any], towards: Any) -> tuple[Any, Any]:
        """Return the gradients of params and of what was given."""
        held = jax.tree.leaves(params)
        rest = iter(kept)
        leaves = [next(rest) if n is None else held[n] for n in self.weights]
        return self.back.unflatten(leaves)(towards)


def thrifty(layer: Layer) -> Callable[..., Any]:
    """Return the layer of which a backward keeps what is costly, and makes the rest.

    Norms, activations and softmax are made again from products: a third of the memory,
    which is written and read for every microbatch, for a tenth more operations.
    """

    def costly(primitive: Any, *_: Any, **__: Any) -> bool:
        return primitive.name in KEPT

    return jax.checkpoint(layer.apply, policy=costly)


def piece(
    layers: Sequence[Layer],
    params: Any,
    given: Any,
    batch: Any,
    *,
    last: Layer,
    remat: bool,
) -> Piece:
    """Trace layers; with remat a backward keeps what they are given, no more.

    The last layer of all makes its gradient with the loss: it keeps that.
    """

    def run(batch: Any, params: Any, given: Any) -> Any:
        for layer in layers:
            apply = layer.apply if layer is last else thrifty(layer)
            given = apply(read(layer, params), given, batch)
        return given

    call = jax.checkpoint(run) if remat else run
    read_here = tuple(names(layers))
    weights: list[int | None] = []
    trees = []

    def once(params: Any, given: Any) -> Any:
        out, back = jax.vjp(partial(call, batch), params, given)
        leaves, tree = jax.tree.flatten(back)
        # params are held anyway: what is one of them is not kept for each microbatch
        known = {id(leaf): n for n, leaf in enumerate(jax.tree.leaves(params))}
        weights.extend(known.get(id(leaf)) for leaf in leaves)
        trees.append(tree)
        return out, [leaf for leaf in leaves if id(leaf) not in known]

    some = {name: params[name] for name in read_here}
    gives, kept = jax.eval_shape(once, some, given)
    return Piece(
        call, read_here, packing(gives), trees[0], tuple(weights), packing(kept)
    )


class Traced(NamedTuple):
    """A part, as it will run."""

    number: int
    part: Part
    pieces: tuple[Piece, ...]

    @property
    def gives(self) -> Packing:
        return self.pieces[-1].gives

    @property
    def keeps(self) -> dict[str, int]:
        """What a microbatch's backward needs."""
        return sums(one.kept.lengths for one in self.pieces)


def trace(parts: Sequence[Part], batch: Any, remat: bool) -> list[Traced]:
    """Trace all parts, each given what the one before it gives; inside shard_map."""
    given: Any = None
    found, last = [], parts[-1].pieces[-1][-1]
    for number, part in enumerate(parts):
        params = part.params.tree.unflatten(part.params.like)
        pieces = []
        for layers in part.pieces:
            piece_of = piece(layers, params, given, batch, last=last, remat=remat)
            pieces.append(piece_of)
            given = pieces[-1].gives.tree.unflatten(pieces[-1].gives.like)
        found.append(Traced(number, part, tuple(pieces)))
    return found
