"""Update slices of params on 4 devices by every optimizer, and write what came of it.

A process of its own: how many devices there are is settled when JAX starts.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

from dml.update.dense import OPTIMIZERS, make
from dml.wire.mesh.devices import mesh

SLICES = 4
OPTIONS = {"clip": 3.0, "decay": 0.1}  # some gradients are longer, some shorter
SHAPES = {
    "b": (5,),
    "deep": {"w": (2, 3, 3)},
    "statistics": {"mean": (3,)},
    "w": (4, 4),
}


def draw(seed: int, scale: float = 1.0):
    """Make params or gradients; only some leaves have a number for every slice."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: (scale * rng.standard_normal(shape)).astype(np.float32),
        SHAPES,
        is_leaf=lambda shape: isinstance(shape, tuple),
    )


def gradients():
    """Return a gradient a step, first a short one."""
    return [draw(1, 0.1), draw(2)]


def train(optimizer, params, grads):
    """Return params after all steps."""
    state = optimizer.init(params)
    for one in grads:
        updates, state = optimizer.update(one, state, params)
        params = optax.apply_updates(params, updates)
    return params


def flat(leaf):
    """Return a leaf as a vector that SLICES divide, padded with zeros."""
    return jnp.pad(jnp.ravel(leaf), (0, -leaf.size % SLICES))


def main(path: str) -> None:
    whole, places = draw(0), PartitionSpec("data")
    where = {"axis": "data", "like": whole}

    def every(params, grads):
        return {
            name: train(make(name, 0.1, **OPTIONS, **where), params, grads)
            for name in OPTIMIZERS
        }

    sliced = jax.shard_map(
        every, mesh=mesh(data=SLICES), in_specs=places, out_specs=places
    )
    ends = jax.jit(sliced)(*jax.tree.map(flat, (whole, gradients())))
    for leaf in jax.tree.leaves(ends):
        assert {len(one.data) for one in leaf.addressable_shards} == {leaf.size // 4}
    flattened = jax.tree_util.tree_leaves_with_path(ends)
    np.savez(path, **{jax.tree_util.keystr(at): leaf for at, leaf in flattened})


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", SLICES)
    main(*sys.argv[1:])
