"""Megatron's conjugate operators (Shoeybi 2019, fig. 3), with their transposes.

          ┌─→ by columns → by rows ─┐
   x ─ f ─┼─→ by columns → by rows ─┼─ g → y    forward: f copies, g sums over the axis
          └─→ by columns → by rows ─┘           backward: g copies, f sums

   x/t ─ f' ─→   as above   ─→ g' ─ y/t         f' gathers slices, g' sums into slices;
                                                backward: g' gathers, f' sums

t is the number of devices of the axis. A product by columns needs all of x and computes
a slice of the hidden units; a product by rows computes a term of the sum y from that
slice. Arguments and results are per device.
"""

# JAX's psum alone gives wrong gradients. With check_vma=False its transpose is another
# psum, but the gradient of y is already equal on all devices, so the result would be t
# times too large. JAX also does not know that x is replicated, so it would not sum the
# gradients of x over the devices.

from functools import partial

import jax


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def copy_to_devices(x: jax.Array, axis: str) -> jax.Array:
    """f: return the replicated x; the gradient is summed over the devices.

    Cost: backward an all-reduce of x; with a ring a device sends 2 (t - 1)/t of the
    elements of x.
    """
    return x


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def sum_over_devices(x: jax.Array, axis: str) -> jax.Array:
    """g: return the sum over the devices; its gradient is replicated and unchanged.

    Cost: forward an all-reduce of x.
    """
    return jax.lax.psum(x, axis)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gather_slices(x: jax.Array, axis: str, along: int) -> jax.Array:
    """f': return the concatenated slices; the gradient is summed and sliced.

    Cost: forward an all-gather, (t - 1)/t of the gathered elements; backward a
    reduce-scatter of the same number of elements: in total the cost of f.

    Args:
      x: A device's slice.
      axis: Axis of the mesh.
      along: Array axis along which x is sliced.
    """
    return all_gather_slices(x, axis, along)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def sum_into_slices(x: jax.Array, axis: str, along: int) -> jax.Array:
    """g': return a slice of the sum over the devices; gradients are gathered.

    Cost: forward a reduce-scatter, backward an all-gather: in total the cost of g.
    """
    return reduce_scatter_slices(x, axis, along)


def all_gather_slices(x: jax.Array, axis: str, along: int) -> jax.Array:
    """Return the concatenated slices.

    Checkpoint policies find JAX's primitive by its name, all_gather.
    """
    return jax.lax.all_gather(x, axis, axis=along, tiled=True)


def reduce_scatter_slices(x: jax.Array, axis: str, along: int) -> jax.Array:
    """Return this device's slice of the sum over the devices."""
    return jax.lax.psum_scatter(x, axis, scatter_dimension=along, tiled=True)


copy_to_devices.defvjp(
    lambda x, axis: (x, None),
    lambda axis, _, grad: (jax.lax.psum(grad, axis),),
)
sum_over_devices.defvjp(
    lambda x, axis: (jax.lax.psum(x, axis), None),
    lambda axis, _, grad: (grad,),
)
gather_slices.defvjp(
    lambda x, axis, along: (all_gather_slices(x, axis, along), None),
    lambda axis, along, _, grad: (reduce_scatter_slices(grad, axis, along),),
)
sum_into_slices.defvjp(
    lambda x, axis, along: (reduce_scatter_slices(x, axis, along), None),
    lambda axis, along, _, grad: (all_gather_slices(grad, axis, along),),
)
