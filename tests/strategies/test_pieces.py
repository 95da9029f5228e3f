"""What a backward keeps, and what it makes again."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, PartitionSpec

from dml.strategies.hybrid.pieces import thrifty
from dml.types import Layer
from dml.wire.mesh.conjugate import gathered, scattered, shared, summed

PAIRS = {
    "slices": (partial(gathered, axis="tensor", along=0),)
    + (partial(scattered, axis="tensor", along=0),),
    "wholes": (partial(shared, axis="tensor"), partial(summed, axis="tensor")),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_no_collective_is_made_again(pair):
    enter, leave = PAIRS[pair]

    def apply(params, given, batch):
        return leave(jnp.tanh(enter(given) @ params["w"]))

    axes = jax.make_mesh((1,), ("tensor",), axis_types=(AxisType.Auto,))

    def both(call, *numbers):
        def loss(w, given):
            return call({"w": w}, given, None).sum()

        everywhere = PartitionSpec()
        run = jax.value_and_grad(loss, argnums=(0, 1))
        specs = {"in_specs": everywhere, "out_specs": everywhere}
        return jax.shard_map(run, mesh=axes, check_vma=False, **specs)(*numbers)

    numbers = jnp.ones((4, 4)), jnp.ones((4, 4))
    plain, kept = (
        str(jax.make_jaxpr(partial(both, call))(*numbers))
        for call in (apply, thrifty(Layer(("w",), apply)))
    )
    for name in ("all_gather", "reduce_scatter", "psum"):
        assert kept.count(f" {name}[") == plain.count(f" {name}[")
    assert " all_gather[" in plain or " psum[" in plain
    assert kept.count(" tanh ") == 2 * plain.count(" tanh ")
