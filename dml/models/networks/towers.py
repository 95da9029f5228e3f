"""AlexNet in two towers, a device each (Krizhevsky 2012, figure 2).

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
    """Return the model of one device under shard_map over `tower`, check_vma=False.

    Its params are the device's slices of alexnet's (`specs`). Its gradient is that of
    the slices, its loss that of both towers.
    """
    return network(plan(shape, classes, sizes, crossings), Place(1, meet, alike))


def split(
    device: Model, params: Params, axes: Mesh
) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return a function that computes loss and gradient of params sharded by specs."""
    lies = specs(params)
    return jax.shard_map(
        jax.value_and_grad(device.loss),
        mesh=axes,
        in_specs=(lies, PartitionSpec()),
        out_specs=(PartitionSpec(), lies),
        check_vma=False,
    )


def specs(params: Params) -> Any:
    """Return the sharding of params: a tower has half of the last axis of each."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(*(None,) * (np.ndim(leaf) - 1), AXIS), params
    )


@jax.custom_vjp
def meet(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Return the maps of both towers, on both devices: BxHxWx2C.

    The filters of each device read all maps, and compute a summand of their gradient.
    The transpose adds the summands; each tower gets the sums of its own maps.
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

    So each device has the whole gradient of all scores. The transpose takes the part of
    its own tower; a sum would count it twice.
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

    Where towers meet, a device sends its maps, and the other one their gradient; of
    scores there is no gradient to be sent.
    """
    met = sum(2 * np.prod(one.sees) for one in layers[1:] if one.crosses)
    return 4 * batch * int(met + layers[-1].makes)
