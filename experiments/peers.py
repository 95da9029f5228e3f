"""What others use for an all-reduce, to race against: torch's gloo and jax's psum.

A metered communicator and a buffer in, calls that reduce as many words, each in the
memory that its library likes, out. What is not installed is not offered.
"""

import importlib.util
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import BadInput, CountedComm
from dml.wire.messages import broadcast


def installed(comm: CountedComm, buffer: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The calls of those peers that are installed here and know the dtype."""
    if not comm.machine:
        raise BadInput("expected real ranks with --peers, got --simulate; drop one")
    makers = {"torch": torch_gloo, "jax": jax_psum}
    return {
        f"{name} {maker.__name__.split('_')[1]}": maker(comm, buffer)
        for name, maker in makers.items()
        if importlib.util.find_spec(name)
    }


def torch_gloo(comm: CountedComm, buffer: np.ndarray) -> Callable[[], Any]:
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        port = np.zeros(1, np.int64)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port[0] = free.getsockname()[1]
        broadcast(comm, port)
        distributed.init_process_group(
            "gloo",
            init_method=f"tcp://127.0.0.1:{port[0]}",
            rank=comm.rank,
            world_size=comm.size,
        )
    tensor = torch.from_numpy(np.zeros(len(buffer), buffer.dtype))
    return lambda: distributed.all_reduce(tensor)


def jax_psum(comm: CountedComm, buffer: np.ndarray) -> Callable[[], Any]:
    """One device a process; the call forces the device."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    if not jax.distributed.is_initialized():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(cluster_detection_method="mpi4py")
    jax.config.update("jax_enable_x64", buffer.itemsize == 8)
    mesh = jax.make_mesh((comm.size,), ("ranks",), devices=jax.devices()[: comm.size])
    spec = PartitionSpec("ranks")
    add = jax.jit(
        jax.shard_map(
            lambda words: jax.lax.psum(words, "ranks"),
            mesh=mesh,
            in_specs=spec,
            out_specs=PartitionSpec(),
        )
    )
    words = jax.make_array_from_process_local_data(
        NamedSharding(mesh, spec), np.zeros((1, len(buffer)), buffer.dtype)
    )
    return lambda: add(words).block_until_ready()
