"""ZeRO (Rajbhandari 2020): what data parallel holds k times, in slices over k devices.

    --zero       0      1      2      3
    params     whole  whole  whole  slices   gathered by layers, in both passes
    grads      whole  whole  slices slices   summed by reduce-scatter
    state      whole  slices slices slices   a device updates its slices alone

Held params, their gradients and the optimizer's state in, new ones out. Words that a
device sends, by rings: passes of (k-1)/k·n words for n params: 2, 3 and 2 an update at
0, 1 and 2, and at 3 three a microbatch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.models.layered import composed
from dml.types import Layer, Model, Params
from dml.update.dense import Optimizer, apply
from dml.wire.mesh.axes import SLICED, WHOLE
from dml.wire.mesh.slices import gathered, join, laid, specs, split


class Level(NamedTuple):
    """How params, their gradients and the optimizer's state lie."""

    params: PartitionSpec
    grads: PartitionSpec
    state: PartitionSpec


ZERO = {
    0: Level(WHOLE, WHOLE, WHOLE),
    1: Level(WHOLE, WHOLE, SLICED),
    2: Level(WHOLE, SLICED, SLICED),
    3: Level(SLICED, SLICED, SLICED),
}


class Held(NamedTuple):
    """What one level does with one model's params, on one mesh."""

    loss: Callable[[Params, Any], Any]  # of params as they lie, on one device
    hold: Callable[[Params], Params]  # whole -> as they lie
    whole: Callable[[Params], Params]  # and back, on every device
    slice: Callable[[Any], Any]  # whole grads -> as they lie
    begin: Callable[[Any], Any]  # the optimizer's state as a Step has it -> as it lies
    update: Callable[[Any, Any, Params], tuple[Params, Any]]  # grads, state, params
    collect: Callable[[Any], Any]  # state -> as a Step has it: whole, on the host


def holding(
    level: Level, model: Model, params: Params, optimizer: Optimizer, axes: Mesh
) -> Held:
    """Make what a level does; params are whole, and may be only shapes."""
    size = axes.shape["data"]
    like = jax.eval_shape(lambda tree: tree, params)
    state = jax.eval_shape(optimizer.init, like)
    as_slices = partial(split, size=size)

    def placed(there: bool) -> Callable[[Any], Any]:
        return jax.jit(
            as_slices if there else lambda tree: tree,
            out_shardings=NamedSharding(axes, SLICED if there else WHOLE),
        )

    thin = level.state == SLICED
    sliced = jax.eval_shape(lambda tree: optimizer.init(as_slices(tree)), like)
    lies = specs(sliced) if thin else WHOLE
    lays = jax.tree.map(lambda spec: NamedSharding(axes, spec), lies)
    there, wide = level.params == SLICED, NamedSharding(axes, WHOLE)
    return Held(
        loss=gathering(model, like).loss if there else model.loss,
        hold=placed(there),
        whole=jax.jit(partial(join, like=like), out_shardings=wide)
        if there
        else lambda params: params,
        slice=placed(level.grads == SLICED),
        begin=jax.jit(
            partial(_sliced, of=sliced, size=size) if thin else lambda state: state,
            out_shardings=lays,
        ),
        update=updating(level, like, optimizer, axes, lies)
        if thin
        else partial(apply, optimizer),
        collect=partial(
            _collected, jax.jit(partial(join, like=state), out_shardings=wide)
        ),
    )


def _sliced(state: Any, of: Any, size: int) -> Any:
    """Return an optimizer's whole state in slices, where that of slices has them."""
    return jax.tree.map(
        lambda leaf, thin: leaf if leaf.shape == thin.shape else split(leaf, size),
        state,
        of,
    )


def _collected(whole: Callable[[Any], Any], state: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf.addressable_data(0)), whole(state))


def gathering(model: Model, like: Params) -> Model:
    """Return the model of params in slices, inside shard_map.

    A layer gathers what it reads, and again in the backward pass: it is not kept.
    """
    keep = jax.checkpoint_policies.save_anything_except_these_names("gathered")

    def around(layer: Layer) -> Layer:
        shapes = {name: like[name] for name in layer.names}

        @partial(jax.checkpoint, policy=keep)
        def apply(slices: Any, given: Any, batch: Any) -> Any:
            return layer.apply(
                checkpoint_name(gathered(slices, shapes), "gathered"), given, batch
            )

        return Layer(layer.names, apply)

    if not model.layers:
        loss = jax.checkpoint(
            lambda slices, batch: model.loss(
                checkpoint_name(gathered(slices, like), "gathered"), batch
            ),
            policy=keep,
        )
        return model._replace(loss=loss)
    layers = [around(layer) for layer in model.layers]
    return model._replace(loss=composed(layers))


def updating(
    level: Level, like: Params, optimizer: Optimizer, axes: Mesh, lies: Any
) -> Callable[[Any, Any, Params], tuple[Params, Any]]:
    """Compile the update of slices, each by its device."""
    size = axes.shape["data"]

    def step(grads: Any, state: Any, params: Params) -> tuple[Params, Any]:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    alone = jax.shard_map(
        step,
        mesh=axes,
        in_specs=(SLICED, lies, SLICED),
        out_specs=(SLICED, lies),
    )

    def thin(tree: Any, spec: PartitionSpec) -> Any:
        return tree if spec == SLICED else laid(split(tree, size), axes, SLICED)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(grads: Any, state: Any, params: Params) -> tuple[Params, Any]:
        new, state = alone(thin(grads, level.grads), state, thin(params, level.params))
        if level.params == WHOLE:
            new = laid(join(new, like), axes, WHOLE)  # an all-gather
        return new, state

    return update
