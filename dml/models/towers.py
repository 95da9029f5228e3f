"""GRADIENT: AlexNet in two towers, a device each (Krizhevsky 2012, figure 2).

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

from dml.models.alexnet import PUBLISHED, SMALL, Filters, Place, Sizes, network, plan
from dml.types import Batch, Grads, Model, Params

AXIS = "tower"


def tower(
    shape: tuple[int, ...],
    classes: int,
    sizes: Sizes = SMALL,
    crossings: Sequence[int] = PUBLISHED,
) -> Model:
    """Make what one device computes under shard_map over `tower`, check_vma=False.

    Of alexnet's params, which its init makes, it takes its slices (`specs`), and finds
    the gradient of just these; its loss is that of both.
    """
    return network(plan(shape, classes, sizes, crossings), Place(1, meet, alike))


def split(
    device: Model, params: Params, axes: Mesh
) -> Callable[[Params, Batch], tuple[Any, Grads]]:
    """Return what finds the loss and the gradient of params that lie as specs say."""
    lies = specs(params)
    return jax.shard_map(
        jax.value_and_grad(device.loss),
        mesh=axes,
        in_specs=(lies, PartitionSpec()),
        out_specs=(PartitionSpec(), lies),
        check_vma=False,
    )


def specs(params: Params) -> Any:
    """Return how params lie: a tower's filters are half of the last axis of each."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(*(None,) * (np.ndim(leaf) - 1), AXIS), params
    )


@jax.custom_vjp
def meet(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Put both towers' maps side by side, on both devices; C is one tower's, then 2 C.

    Each device's filters see them all, and find a part of their gradient: the transpose
    sums the parts, and leaves each tower those of its own maps.
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
    """Put both towers' scores side by side, for one loss that both devices compute.

    So each finds the whole gradient of all scores: the transpose takes its own, and a
    sum would count it twice.
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

    Where towers meet, a tower's maps go to the other one, and their gradient comes
    back; scores go only forth.
    """
    met = sum(2 * np.prod(one.sees) for one in layers[1:] if one.crosses)
    return 4 * batch * int(met + layers[-1].makes)
