"""All-reduces of other libraries for comparison: torch with gloo, and jax psum.

Each all-reduce sums an array of its library with as many elements as the buffer.
Libraries that are not installed are left out.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import BadInput, CountedComm


def installed(comm: CountedComm, buffer: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return the all-reduces of the installed libraries, by name."""
    if comm.platform.virtual:
        raise BadInput(
            "expected real ranks with --peers, got --simulate; delete one of them"
        )
    makers = {"torch": torch_gloo, "jax": jax_psum}
    return {
        f"{name} {maker.__name__.split('_')[1]}": maker(comm, buffer)
        for name, maker in makers.items()
        if importlib.util.find_spec(name)
    }


def torch_gloo(comm: CountedComm, buffer: np.ndarray) -> Callable[[], Any]:
    import torch
    from torch import distributed

    from dml.wire.mesh.devices import coordinator_address

    if not distributed.is_initialized():
        distributed.init_process_group(
            "gloo",
            init_method=f"tcp://{coordinator_address(comm)}",
            rank=comm.rank,
            world_size=comm.size,
        )
    tensor = torch.from_numpy(np.zeros(len(buffer), buffer.dtype))
    return lambda: distributed.all_reduce(tensor)


def jax_psum(comm: CountedComm, buffer: np.ndarray) -> Callable[[], Any]:
    """Return a psum over one device per process; a call waits for the result."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    from dml.wire.mesh.devices import start

    start(comm)
    jax.config.update("jax_enable_x64", buffer.itemsize == 8)
    options = {"devices": jax.devices()[: comm.size], "axis_types": (AxisType.Auto,)}
    mesh = jax.make_mesh((comm.size,), ("ranks",), **options)
    spec = PartitionSpec("ranks")
    add = jax.jit(
        jax.shard_map(
            lambda elements: jax.lax.psum(elements, "ranks"),
            mesh=mesh,
            in_specs=spec,
            out_specs=PartitionSpec(),
        )
    )
    elements = jax.make_array_from_process_local_data(
        NamedSharding(mesh, spec), np.zeros((1, len(buffer)), buffer.dtype)
    )
    return lambda: add(elements).block_until_ready()
