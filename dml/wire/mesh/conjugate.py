"""Megatron's conjugate operators (Shoeybi 2019, fig. 3), with their transposes.

          ┌─→ by columns → by rows ─┐
   x ─ f ─┼─→ by columns → by rows ─┼─ g → y    forward: f copies, g sums over the axis
          └─→ by columns → by rows ─┘           backward: g copies, f sums

   x/t ─ f' ─→   as above   ─→ g' ─ y/t         f' joins slices, g' sums into slices;
                                                backward: g' joins, f' sums into slices

A product by columns needs all of x and computes a slice of the hidden units; a product
by rows computes a summand of y from that slice. Arguments and results are per device.
"""

# JAX's psum is not enough. With check_vma=False it transposes into another psum. The
# gradient of y is equal on all devices already: the sum would be t times too large. And
# JAX does not know that x is replicated: its gradient would stay a summand.

from functools import partial

import jax


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def shared(x: jax.Array, axis: str) -> jax.Array:
    """f: return the replicated x; the gradient is summed over the devices.

    Cost: backward an all-reduce of x; a ring of t sends 2 (t - 1)/t of its words.
    """
    return x


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def summed(x: jax.Array, axis: str) -> jax.Array:
    """g: return the sum over the devices; its gradient is replicated and unchanged.

    Cost: forward an all-reduce of x.
    """
    return jax.lax.psum(x, axis)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gathered(x: jax.Array, axis: str, along: int) -> jax.Array:
    """f': return the joined slices; the gradient is summed and sliced.

    Cost: forward an all-gather, (t - 1)/t of the joined words; backward a
    reduce-scatter of the same number of words. The sum is the cost of f.
    """
    return joined(x, axis, along)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def scattered(x: jax.Array, axis: str, along: int) -> jax.Array:
    """g': return a slice of the sum over the devices; the gradients are joined.

    Cost: forward a reduce-scatter, backward an all-gather: in total the cost of g.
    """
    return parted(x, axis, along)


def joined(x: jax.Array, axis: str, along: int) -> jax.Array:
    """Return the joined slices by JAX's own primitive, as checkpoint policies need."""
    return jax.lax.all_gather(x, axis, axis=along, tiled=True)


def parted(x: jax.Array, axis: str, along: int) -> jax.Array:
    return jax.lax.psum_scatter(x, axis, scatter_dimension=along, tiled=True)


shared.defvjp(
    lambda x, axis: (x, None),
    lambda axis, _, grad: (jax.lax.psum(grad, axis),),
)
summed.defvjp(
    lambda x, axis: (jax.lax.psum(x, axis), None),
    lambda axis, _, grad: (grad,),
)
gathered.defvjp(
    lambda x, axis, along: (joined(x, axis, along), None),
    lambda axis, along, _, grad: (parted(grad, axis, along),),
)
scattered.defvjp(
    lambda x, axis, along: (parted(x, axis, along), None),
    lambda axis, along, _, grad: (joined(grad, axis, along),),
)
