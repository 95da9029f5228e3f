"""AlexNet in two towers, one on each of two devices (Krizhevsky 2012, figure 2).

           1    2    3    4    5    6    7    8
   ┌ ▓▓ → ▓▓ → ▓▓ ╲╱ ▓▓ → ▓▓ → ▓▓ ╲╱ ▓▓ ╲╱ ▓▓ ╲╱ ▓▓ ┐    device 0
image             ╳                 ╳     ╳     ╳    classes
   └ ▓▓ → ▓▓ → ▓▓ ╱╲ ▓▓ → ▓▓ → ▓▓ ╱╲ ▓▓ ╱╲ ▓▓ ╱╲ ▓▓ ┘    device 1
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from dml.models.networks.alexnet import (
    PUBLISHED,
    SMALL,
    Filters,
    Place,
    Sizes,
    network,
    plan,
)
from dml.types import Batch, Grads, Model, Params

AXIS = "tower"


def tower(
    shape: tuple[int, ...],
    classes: int,
    sizes: Sizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Return the model of one device in shard_map over `tower`, with check_vma=False.

    The params are the device's slices of the params of `alexnet`, sharded by `specs`.
    The loss is that of both towers, the gradient that of the slices.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      sizes: Sizes of the network.
      crossings: Numbers of the layers, 2 to 8, that read the maps of both towers.
    """
    return network(plan(shape, classes, sizes, crossings), Place(1, meet, alike))


def split(
    device: Model, params: Params, axes: Mesh
) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return (params sharded by `specs`, batch) -> loss, gradient."""
    shardings = specs(params)
    return jax.shard_map(
        jax.value_and_grad(device.loss),
        mesh=axes,
        in_specs=(shardings, PartitionSpec()),
        out_specs=(PartitionSpec(), shardings),
        check_vma=False,
    )


def specs(params: Params) -> Any:
    """Return PartitionSpecs of params: a tower has half of each leaf's last axis."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(*(None,) * (np.ndim(leaf) - 1), AXIS), params
    )


@jax.custom_vjp
def meet(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Return the maps of both towers, on both devices: BxHxWx2C.

    The filters of each device read all maps, and compute a term of their gradient. The
    transpose sums the terms and returns to each tower the sums for its maps.
    """
    return jax.lax.all_gather(maps_BxHxWxC, AXIS, axis=3, tiled=True)


meet.defvjp(
    lambda maps: (meet(maps), None),
    lambda _, grads: (
        jax.lax.psum_scatter(grads, AXIS, scatter_dimension=3, tiled=True),
    ),
)


@jax.custom_vjp
def alike(scores_BxC: jax.Array) -> jax.Array:
    """Return the scores of both towers, for one loss that both devices compute.

    Each device has the full gradient of all scores. The transpose takes the slice of
    the device's tower; a sum over devices would count it twice.
    """
    return jax.lax.all_gather(scores_BxC, AXIS, axis=1, tiled=True)


alike.defvjp(
    lambda scores: (alike(scores), scores.shape[1]),
    lambda width, grads: (
        jax.lax.dynamic_slice_in_dim(
            grads, jax.lax.axis_index(AXIS) * width, width, axis=1
        ),
    ),
)


def crossing_bytes(layers: Sequence[Filters], batch: int) -> int:
    """Return the bytes that both devices together send in a step, in float32.

    Before a layer that crosses, a device sends its maps, and the other device their
    gradient. Scores are sent without a gradient.
    """
    crossing = [filters for filters in layers[1:] if filters.crosses]
    maps = sum(2 * np.prod(filters.sees) for filters in crossing)
    return 4 * batch * int(maps + layers[-1].makes)
