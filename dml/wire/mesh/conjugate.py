"""Megatron's conjugate operators (Shoeybi 2019, fig. 3), with their transposes.

          ┌─→ by columns → by rows ─┐
   x ─ f ─┼─→ by columns → by rows ─┼─ g → y    forward: f copies, g sums over the axis
          └─→ by columns → by rows ─┘           backward: g copies, f sums

   x/t ─ f' ─→   as above   ─→ g' ─ y/t         f' joins slices, g' sums into slices;
                                                backward: g' joins, f' sums into slices

A product by columns makes a part of what is between from all of x, one by rows a part
of the sum y from that part. What a device of the axis holds goes in and out.
"""

# JAX's own psum would not do. With check_vma=False, as here, it transposes into another
# psum, but the gradient of y is whole on every device already: it would count t times.
# And that x is equal on all devices JAX cannot know: its gradient would stay a part.

from functools import partial

import jax


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def shared(x: jax.Array, axis: str) -> jax.Array:
    """f: take what is equal on all devices; its gradient is summed over them.

    Cost: backward an all-reduce of x; a ring of t sends 2 (t - 1)/t of its words.
    """
    return x


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def summed(x: jax.Array, axis: str) -> jax.Array:
    """g: sum over the devices; each takes the sum's gradient, which all have, as it is.

    Cost: forward an all-reduce of x.
    """
    return jax.lax.psum(x, axis)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gathered(x: jax.Array, axis: str, along: int) -> jax.Array:
    """f': join the devices' slices; the gradient is summed over them, in slices.

    Cost: forward an all-gather, (t - 1)/t of the joined words, backward a
    reduce-scatter of as many: together what f costs.
    """
    return joined(x, axis, along)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def scattered(x: jax.Array, axis: str, along: int) -> jax.Array:
    """g': sum over the devices, of which each keeps a slice; gradients are joined.

    Cost: forward a reduce-scatter, backward an all-gather: together what g costs.
    """
    return parted(x, axis, along)


def joined(x: jax.Array, axis: str, along: int) -> jax.Array:
    """Call JAX itself: a policy of what a backward keeps then knows a collective."""
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
