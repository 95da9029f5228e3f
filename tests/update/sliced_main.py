"""Slices of params on 4 devices, updated by every optimizer, against the whole.

A process of its own: how many devices there are is settled when JAX starts.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

from dml.update.dense import OPTIMIZERS, make
from dml.wire.mesh.devices import mesh
from tests.checks import run

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


def slices_move_as_the_whole_does():
    params, grads = draw(0), gradients()
    norms = [float(optax.tree.norm(one)) for one in grads]
    assert norms[0] < OPTIONS["clip"] < norms[-1]

    def every(params, grads, **where):
        names = [name for name in OPTIMIZERS if name != "muon"]  # refused
        rules = {name: make(name, 0.1, **OPTIONS, **where) for name in names}
        return {name: train(rule, params, grads) for name, rule in rules.items()}

    def sliced(*trees):
        return every(*trees, axis="data", like=params)

    def flat(leaf):  # a vector that SLICES divide, padded with zeros
        return jnp.pad(jnp.ravel(leaf), (0, -leaf.size % SLICES))

    places = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
    shards = jax.jit(jax.shard_map(sliced, mesh=mesh(data=SLICES), **places))
    ends = shards(*jax.tree.map(flat, (params, grads)))
    want = jax.tree.map(flat, jax.jit(every)(params, grads))
    for (at, leaf), whole in zip(
        jax.tree_util.tree_leaves_with_path(ends), jax.tree.leaves(want), strict=True
    ):
        assert {len(one.data) for one in leaf.addressable_shards} == {leaf.size // 4}
        # float32: sums of squares in another order, through 2 updates
        np.testing.assert_allclose(leaf, whole, 2e-5, 1e-6, err_msg=str(at))


if __name__ == "__main__":
    run([slices_move_as_the_whole_does], SLICES)
