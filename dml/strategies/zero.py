"""ZeRO (Rajbhandari 2020): the replicas of data parallel, sharded on k devices.

    --zero      0           1           2         3
    params   replicated  replicated  replicated  sharded   gathered layer by layer in
                                                           forward and backward pass
    grads    replicated  replicated  sharded     sharded   summed by reduce-scatter
    state    replicated  sharded     sharded     sharded   a device updates its slices

Words that a device sends by rings, in units of (k-1)/k·n for n params: 2, 3 and 2 per
update at levels 0, 1 and 2; 3 per microbatch at level 3.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.models.layered import compose
from dml.models.primitives import GATHERED, saves_all_but
from dml.types import Layer, Model, Params
from dml.update.dense import Optimizer, apply
from dml.wire.mesh.axes import DATA_SHARDED, REPLICATED
from dml.wire.mesh.slices import constrain_sharding, gather_slices, join, specs, split


class Level(NamedTuple):
    """Sharding of params, gradients and state: REPLICATED or DATA_SHARDED."""

    params: PartitionSpec
    grads: PartitionSpec
    state: PartitionSpec


ZERO = {
    0: Level(REPLICATED, REPLICATED, REPLICATED),
    1: Level(REPLICATED, REPLICATED, DATA_SHARDED),
    2: Level(REPLICATED, DATA_SHARDED, DATA_SHARDED),
    3: Level(DATA_SHARDED, DATA_SHARDED, DATA_SHARDED),
}


class Placement(NamedTuple):
    """The functions of one level of ZeRO for one model on one mesh.

    "Placed" trees are sharded or replicated, as the level determines.

    Attributes:
      loss: (placed params, batch) -> loss, on one device.
      place: Full params -> placed params.
      replicate: Placed params -> full params on every device.
      place_grads: Full gradients -> placed gradients.
      place_state: Optimizer state of a Step -> placed state.
      update: (gradients, state, params), all placed -> new params and state.
      collect_state: Placed state -> the full state on the host, as in a Step.
    """

    loss: Callable[[Params, Any], Any]
    place: Callable[[Params], Params]
    replicate: Callable[[Params], Params]
    place_grads: Callable[[Any], Any]
    place_state: Callable[[Any], Any]
    update: Callable[[Any, Any, Params], tuple[Params, Any]]
    collect_state: Callable[[Any], Any]


def placement(
    level: Level, model: Model, params: Params, optimizer: Optimizer, axes: Mesh
) -> Placement:
    """Return the functions of a level.

    Args:
      level: Which trees are sharded.
      model: The model; at level 3 its layers gather their params.
      params: Full params, or their shapes.
      optimizer: An optax optimizer.
      axes: The mesh, with the axis `data`.
    """
    size = axes.shape["data"]
    like = jax.eval_shape(lambda tree: tree, params)
    state = jax.eval_shape(optimizer.init, like)
    as_slices = partial(split, size=size)

    def placing(sharded: bool) -> Callable[[Any], Any]:
        return jax.jit(
            as_slices if sharded else lambda tree: tree,
            out_shardings=NamedSharding(axes, DATA_SHARDED if sharded else REPLICATED),
        )

    sharded_params, sharded_state = (
        level.params == DATA_SHARDED,
        level.state == DATA_SHARDED,
    )
    state_slices = jax.eval_shape(lambda tree: optimizer.init(as_slices(tree)), like)
    state_specs = specs(state_slices) if sharded_state else REPLICATED
    state_shardings = jax.tree.map(lambda spec: NamedSharding(axes, spec), state_specs)
    replicated = NamedSharding(axes, REPLICATED)
    return Placement(
        loss=gathering(model, like).loss if sharded_params else model.loss,
        place=placing(sharded_params),
        replicate=jax.jit(partial(join, like=like), out_shardings=replicated)
        if sharded_params
        else lambda params: params,
        place_grads=placing(level.grads == DATA_SHARDED),
        place_state=jax.jit(
            partial(_sliced, slices=state_slices, size=size)
            if sharded_state
            else lambda state: state,
            out_shardings=state_shardings,
        ),
        update=updating(level, like, optimizer, axes, state_specs)
        if sharded_state
        else partial(apply, optimizer),
        collect_state=partial(
            _collected, jax.jit(partial(join, like=state), out_shardings=replicated)
        ),
    )


def _sliced(state: Any, slices: Any, size: int) -> Any:
    """Split the leaves of a full optimizer state whose shapes differ in `slices`."""
    return jax.tree.map(
        lambda leaf, part: leaf if leaf.shape == part.shape else split(leaf, size),
        state,
        slices,
    )


def _collected(replicate: Callable[[Any], Any], state: Any) -> Any:
    full = replicate(state)
    return jax.tree.map(lambda leaf: np.array(leaf.addressable_data(0)), full)


def gathering(model: Model, like: Params) -> Model:
    """Return the model of sharded params, inside shard_map.

    A layer gathers the params that it reads, and gathers them again in the backward
    pass: gathered params are not saved.
    """
    keep = saves_all_but(GATHERED)

    def around(layer: Layer) -> Layer:
        shapes = {name: like[name] for name in layer.names}

        @partial(jax.checkpoint, policy=keep)
        def apply(slices: Any, inputs: Any, batch: Any) -> Any:
            return layer.apply(gather_slices(slices, shapes), inputs, batch)

        return Layer(layer.names, apply)

    if not model.layers:
        loss = jax.checkpoint(
            lambda slices, batch: model.loss(gather_slices(slices, like), batch),
            policy=keep,
        )
        return model._replace(loss=loss)
    layers = [around(layer) for layer in model.layers]
    return model._replace(loss=compose(layers))


def updating(
    level: Level, like: Params, optimizer: Optimizer, axes: Mesh, state_specs: Any
) -> Callable[[Any, Any, Params], tuple[Params, Any]]:
    """Compile the update with sharded optimizer state: a device updates its slices.

    Args:
      level: Which trees are sharded.
      like: Shapes of the full params.
      optimizer: An optax optimizer of slices.
      axes: The mesh.
      state_specs: PartitionSpecs of the optimizer state.
    """
    size = axes.shape["data"]

    def step(grads: Any, state: Any, params: Params) -> tuple[Params, Any]:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    update_slices = jax.shard_map(
        step,
        mesh=axes,
        in_specs=(DATA_SHARDED, state_specs, DATA_SHARDED),
        out_specs=(DATA_SHARDED, state_specs),
    )

    def sliced(tree: Any, spec: PartitionSpec) -> Any:
        return (
            tree
            if spec == DATA_SHARDED
            else constrain_sharding(split(tree, size), axes, DATA_SHARDED)
        )

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(grads: Any, state: Any, params: Params) -> tuple[Params, Any]:
        new, state = update_slices(
            sliced(grads, level.grads), state, sliced(params, level.params)
        )
        if level.params == REPLICATED:
            new = constrain_sharding(join(new, like), axes, REPLICATED)  # an all-gather
        return new, state

    return update
