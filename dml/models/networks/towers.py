"""AlexNet in two towers, one on each of two devices (Krizhevsky 2012, figure 2).

           1    2    3    4    5    6    7    8
   ┌ ▓▓ → ▓▓ → ▓▓ ╲╱ ▓▓ → ▓▓ → ▓▓ ╲╱ ▓▓ ╲╱ ▓▓ ╲╱ ▓▓ ┐    device 0
image             ╳                 ╳     ╳     ╳    classes
   └ ▓▓ → ▓▓ → ▓▓ ╱╲ ▓▓ → ▓▓ → ▓▓ ╱╲ ▓▓ ╱╲ ▓▓ ╱╲ ▓▓ ┘    device 1

▓▓: the maps that a tower computes in layers 1 to 8. ╲╱: the devices exchange maps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dml.models.networks.alexnet import (
    PUBLISHED,
    SMALL,
    AlexNetSizes,
    Filters,
    Placement,
    network,
    network_layers,
)
from dml.types import Batch, Grads, Model, Params

AXIS = "tower"


def tower_model(
    shape: tuple[int, ...],
    classes: int,
    sizes: AlexNetSizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Return the model of one device, for shard_map over `tower` with check_vma=False.

    The params are the device's slices of the params of `alexnet`, sharded by `specs`.
    Both devices compute the loss of the whole network; each computes the gradient of
    its slices.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      sizes: Sizes of the network.
      crossings: Numbers of the layers, 2 to 8, that read the maps of both towers.
    """
    return network(
        network_layers(shape, classes, sizes, crossings),
        Placement(1, gather_maps, gather_scores),
    )


def sharded_gradient(
    device: Model, params: Params, axes: Mesh
) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return (params sharded by `specs`, batch) -> loss, gradient.

    Args:
      device: Model of one device, from `tower_model`.
      params: Params of `alexnet`; only their structure is used.
      axes: Mesh with the axis `tower` of two devices.
    """
    shardings = specs(params)
    return jax.shard_map(
        jax.value_and_grad(device.loss),
        mesh=axes,
        in_specs=(shardings, PartitionSpec()),
        out_specs=(PartitionSpec(), shardings),
        check_vma=False,
    )


def specs(params: Params) -> Any:
    """Return PartitionSpecs of params; towers divide the last axis of every leaf."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(*(None,) * (np.ndim(leaf) - 1), AXIS), params
    )


@jax.custom_vjp
def gather_maps(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Return the maps of both towers, on both devices: BxHxWx2C.

    In the backward pass each device has one term of the gradient with respect to all
    maps. The transpose sums the terms and returns to each tower the sums for its maps.
    """
    return jax.lax.all_gather(maps_BxHxWxC, AXIS, axis=3, tiled=True)


gather_maps.defvjp(
    lambda maps: (gather_maps(maps), None),
    lambda _, grads: (
        jax.lax.psum_scatter(grads, AXIS, scatter_dimension=3, tiled=True),
    ),
)


@jax.custom_vjp
def gather_scores(scores_BxC: jax.Array) -> jax.Array:
    """Return the scores of both towers, on both devices, which compute equal losses.

    In the backward pass each device has the full gradient with respect to all scores.
    The transpose returns the slice of the device's tower; a sum over devices would
    count the gradient twice.
    """
    return jax.lax.all_gather(scores_BxC, AXIS, axis=1, tiled=True)


gather_scores.defvjp(
    lambda scores: (gather_scores(scores), scores.shape[1]),
    lambda width, grads: (
        jax.lax.dynamic_slice_in_dim(
            grads, jax.lax.axis_index(AXIS) * width, width, axis=1
        ),
    ),
)


def crossing_bytes(layers: Sequence[Filters], batch: int) -> int:
    """Return the bytes that both devices together send in a step, in float32.

    Before a layer that reads both towers, maps are sent forward and their gradients
    backward. Scores are sent forward only.
    """
    crossing = [filters for filters in layers[1:] if filters.reads_both]
    maps_and_gradients = sum(2 * np.prod(filters.input_shape) for filters in crossing)
    return 4 * batch * int(maps_and_gradients + layers[-1].outputs)
