"""Comparison of the replicas of params by hashes.

    rank 0      rank 1
    d0   d1     d2   d3      each device hashes its own replica of every leaf;
    h0   h1     h2   h3      replicas are equal if max(h) == min(h) for every leaf

min(h) is computed as ~max(~h). Cost of a comparison: one all-reduce of two uint32
numbers per leaf.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.types import Comm, Params

# Odd multipliers, so that multiplication modulo 2**32 is invertible: the golden ratio
# and the constants of MurmurHash3 (Appleby).
GOLDEN, FIRST, SECOND = map(np.uint32, (0x9E3779B9, 0x85EBCA6B, 0xC2B2AE35))
AXIS = "replica"


class Diverged(FloatingPointError):
    """Raised if replicas that must be equal are different."""


def first_difference(params: Params, comm: Comm) -> str | None:
    """Return the path of the first leaf that differs between replicas, or None.

    Collective. Sharded leaves have no replicas and are skipped.
    """
    hashes_RxN = fingerprints(params)
    buffer = np.concatenate([hashes_RxN, ~hashes_RxN], axis=1).max(axis=0)
    comm.Allreduce(None, buffer, np.maximum)
    highest, lowest = np.split(buffer, 2)
    (differing,) = np.nonzero(highest != ~lowest)
    if not len(differing):
        return None
    path, _ = jax.tree_util.tree_leaves_with_path(params)[differing[0]]
    return jax.tree_util.keystr(path)


def fingerprints(params: Params) -> np.ndarray:
    """Return uint32 hashes of shape (replicas in this process, leaves).

    A change of one element always changes the hash. A swap of two elements does not
    change it with a probability of about 2**-32.
    """
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(params)]
    devices = set().union(
        *(leaf.sharding.addressable_devices for leaf in leaves if _is_jax(leaf))
    )
    ordered = sorted(devices or jax.local_devices()[:1], key=lambda device: device.id)
    # A mesh of local devices only, so that no process waits for another.
    mesh = Mesh(np.array(ordered), (AXIS,))
    return jax.device_get(_hashes(mesh, [_local(leaf, mesh) for leaf in leaves]))


def _local(leaf: Any, mesh: Mesh) -> jax.Array:
    """Return the local replicas of a leaf as one array on the mesh."""
    replicated = NamedSharding(mesh, PartitionSpec())
    if not _is_jax(leaf):
        return jax.device_put(leaf, replicated)
    if not leaf.sharding.is_fully_replicated:
        return jax.device_put(np.zeros(0, np.uint32), replicated)
    parts = [shard.data for shard in leaf.addressable_shards]
    if len(parts) < mesh.size:
        return jax.device_put(parts[0], replicated)
    return jax.make_array_from_single_device_arrays(leaf.shape, replicated, parts)


@partial(jax.jit, static_argnums=0)
def _hashes(mesh: Mesh, leaves: list[jax.Array]) -> jax.Array:
    def local_hashes(leaves: list[jax.Array]) -> jax.Array:
        hashes = [jnp.zeros(0, jnp.uint32), *(_hash(leaf)[None] for leaf in leaves)]
        return jnp.concatenate(hashes)[None]

    spec = PartitionSpec(AXIS)
    return jax.shard_map(
        local_hashes, mesh=mesh, in_specs=PartitionSpec(), out_specs=spec
    )(leaves)


def _hash(leaf: jax.Array) -> jax.Array:
    """Return the sum, modulo 2**32, of all words, each mixed with its position.

    Integer addition is associative, so the order of the reduction does not matter.
    Multiplication by odd numbers alone would not detect a swap of x and -x.
    """
    words = _words(leaf)
    words ^= jax.lax.iota(jnp.uint32, words.size) * GOLDEN
    words = (words ^ (words >> 16)) * FIRST
    words = (words ^ (words >> 13)) * SECOND
    return jnp.sum(words ^ (words >> 16), dtype=jnp.uint32)


def _words(leaf: jax.Array) -> jax.Array:
    """Return the bits of a leaf as uint32 words, at least one word per element."""
    if jnp.iscomplexobj(leaf):
        leaf = jnp.stack([leaf.real, leaf.imag], -1)
    if leaf.dtype == jnp.bool:
        leaf = leaf.astype(jnp.uint8)
    by_itemsize = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}
    bits = jax.lax.bitcast_convert_type(leaf, by_itemsize[leaf.dtype.itemsize])
    return bits.reshape(-1).astype(jnp.uint32)


def _plain(leaf: Any) -> Any:
    """Return the data of PRNG keys, and the bits of NumPy arrays as unsigned integers.

    Integers have at most 32 bits, because JAX truncates types of 64 bits.
    """
    if not _is_jax(leaf):
        array = np.ascontiguousarray(leaf).reshape(-1)
        return array.view(f"u{min(array.dtype.itemsize, 4)}")
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf


def _is_jax(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array)
