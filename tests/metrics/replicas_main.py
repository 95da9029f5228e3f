"""Four devices of one process: one replica at a time is changed, and found or not."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml import sim
from dml.evaluation.scores import digest, evaluate, one_replica
from dml.metrics.replicas import fingerprints, first_difference
from dml.types import Batch, Model
from tests import checks


def find_each_device():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    plain = {
        "bias": np.float32([1]),
        "kernel": np.arange(6, dtype=np.float32).reshape(3, 2),
        "slices": np.arange(8, dtype=np.float32),
    }
    placed = jax.device_put(plain, everywhere)
    placed["host"] = plain["host"] = np.float64([1, 2])
    slices = NamedSharding(mesh, PartitionSpec("data"))
    placed["slices"] = jax.device_put(plain["slices"], slices)
    found = []

    def look(params):
        found.extend(sim.run(lambda comm: first_difference(params, comm), 1))

    look(placed)
    for who in range(mesh.size):
        parts = [shard.data for shard in placed["kernel"].addressable_shards]
        parts[who] = parts[who].at[2, 1].add(1)
        kernel = jax.make_array_from_single_device_arrays((3, 2), everywhere, parts)
        look(placed | {"kernel": kernel})
    assert found == [None] + ["['kernel']"] * mesh.size, found

    del plain["slices"], placed["slices"]
    hashes = fingerprints(placed)
    np.testing.assert_array_equal(hashes, [fingerprints(plain)[0]] * mesh.size)
    assert digest(placed) == digest(plain)
    metrics = lambda params, batch: {"sum": (batch.inputs @ params["kernel"]).sum()}  # noqa: E731
    model = Model(lambda key: plain, lambda *_: 0.0, metrics)
    batch = Batch(np.eye(3, dtype=np.float32), np.zeros(3))
    assert evaluate(model, batch, placed) == evaluate(model, batch, plain)
    assert len(one_replica(placed["kernel"]).sharding.device_set) == 1


if __name__ == "__main__":
    checks.run([find_each_device], devices=4)
