"""Two ranks as one JAX run: they sum by exact_psum, and the doctor looks at them."""

import sys

import numpy as np

import dml
from dml import doctor
from dml.wire.comm.mpi_library import MPI

if __name__ == "__main__":
    code = doctor.main([])
    dml.start()  # before JAX is used
    import jax
    from jax.sharding import Mesh, PartitionSpec

    rank, size = jax.process_index(), jax.process_count()
    draws = np.random.default_rng(0).standard_normal((size, 1000)).astype(np.float32)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    each = jax.sharding.NamedSharding(mesh, PartitionSpec("data"))
    own = jax.make_array_from_process_local_data(each, draws[rank : rank + 1])
    call = jax.shard_map(
        lambda x: dml.exact_psum(x[0], "data"),
        mesh=mesh,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec(),
    )
    found = np.asarray(jax.jit(call)(own).addressable_data(0))
    expected = draws[MPI.COMM_WORLD.rank].copy()
    dml.exact_sum(MPI.COMM_WORLD, expected)
    assert np.array_equal(found, expected)
    if rank == 0:
        sys.stdout.write(
            f"{size} processes, {len(jax.devices())} devices, code {code}\n"
        )
