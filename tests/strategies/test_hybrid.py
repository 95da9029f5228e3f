"""Meshes, in new processes as JAX sets the number of devices once.

Also the saved activations of a layer, and the printed devices of a part.
"""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from dml.strategies.hybrid.parts import StagePart
from dml.strategies.hybrid.picture import row
from dml.strategies.hybrid.pieces import checkpoint_layer
from dml.types import Layer
from dml.wire.mesh.conjugate import (
    copy_to_devices,
    gather_slices,
    sum_into_slices,
    sum_over_devices,
)
from dml.wire.mesh.packed import packing
from tests.checks import said
from tests.strategies import hybrid_main, mesh_main
from tests.strategies.glove import mesh_main as glove_main

MAINS = hybrid_main, mesh_main, glove_main
CASES = [(main.__name__, check.__name__) for main in MAINS for check in main.CHECKS]


@pytest.mark.parametrize("main, name", CASES)
def test_on_devices(main, name):
    text = said(main)
    assert f"{name}: ok\n" in text, text


def test_devices_are_numbered_in_their_process_wherever_they_lie():
    ids = [(0, 0), (0, 1), (1, 2048), (1, 2049)]
    devices = [SimpleNamespace(process_index=rank, id=n) for rank, n in ids]
    grid = np.empty((2, 2, 1), object)  # data x stage x tensor
    grid[:, :, 0].flat = [devices[n] for n in (0, 2, 1, 3)]
    weights = {"a": np.zeros(250_000, np.float32)}
    part = StagePart(1, 1, 0, [[Layer(("a",), None)]], packing(weights))
    assert row([part], grid, 1) == ("1", "a", "all", "1.00 MB", "1:0 | 1:1")


@pytest.mark.parametrize(
    "enter, leave, own",
    [
        (gather_slices, sum_into_slices, {"along": 0}),
        (copy_to_devices, sum_over_devices, {}),
    ],
)
def test_no_collective_is_made_again(enter, leave, own):
    own = {"axis": "tensor", **own}

    def apply(params, given, batch):
        return leave(jnp.tanh(enter(given, **own) @ params["w"]), **own)

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
        for call in (apply, checkpoint_layer(Layer(("w",), apply)))
    )
    for name in ("all_gather", "reduce_scatter", "psum"):
        assert kept.count(f" {name}[") == plain.count(f" {name}[")
    assert " all_gather[" in plain or " psum[" in plain
    assert kept.count(" tanh ") == 2 * plain.count(" tanh ")
