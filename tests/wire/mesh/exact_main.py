"""Checks of exact sums on eight devices, with XLA's own optimizations."""

import sys
import traceback
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import dml
from dml import BadInput, sim
from dml.wire.mesh import exact

DEVICES = 8
LENGTH = 2 * 512 + 77
EACH = PartitionSpec("data")


def terms(count=DEVICES, length=LENGTH):
    """Return terms whose float32 sum depends on the order."""
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-4, 4, (count, length)))
    return (rng.standard_normal((count, length)) * spread).astype(np.float32)


def summed(values, mesh=None, axis="data", inner=exact.exact_psum, **options):
    """Return the sum of `values` over their first axis, which devices divide."""
    mesh = mesh or Mesh(
        np.array(jax.devices()[: len(jax.tree.leaves(values)[0])]), ("data",)
    )
    call = jax.shard_map(
        lambda tree: inner(jax.tree.map(lambda leaf: leaf[0], tree), axis, **options),
        mesh=mesh,
        in_specs=PartitionSpec(axis),
        out_specs=PartitionSpec(),
    )
    return jax.device_get(jax.jit(call)(values))


def on_ranks(values, **options):
    """Return the sum over virtual ranks."""

    def program(comm):
        buffer = values[comm.rank].copy()
        dml.exact_sum(comm, buffer, **options)
        return buffer

    return sim.run(program, len(values))[0]


def check_sums_of_devices_have_the_bits_of_ranks():
    values = terms()
    for count, most in (3, 8), (8, 65536):
        found = summed(values[:count], terms=most)
        expected = on_ranks(values[:count], terms=most)
        np.testing.assert_array_equal(found, expected)


def check_neither_the_order_nor_the_mesh_nor_zeros_change_bits():
    values = terms(4)
    expected = summed(values)
    assert not np.array_equal(expected, summed(values, inner=jax.lax.psum))
    np.testing.assert_array_equal(summed(values[[1, 3, 0, 2]]), expected)
    square = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    np.testing.assert_array_equal(summed(values, square, ("a", "b")), expected)
    wider = np.concatenate([values, np.zeros_like(values)])
    np.testing.assert_array_equal(summed(wider), expected)


def check_extreme_values_are_those_of_ranks():
    values = terms(3, 6 * 512)
    values[1, 7], values[2, 600], values[0, 601] = np.nan, np.inf, -np.inf
    values[:, 1024:1536] *= 1e-37
    values[:, 1030] = 1e-45
    values[:, 1536:2048] = 0
    values[:, 2048:2560] = 3e38  # their sum is infinite
    with np.errstate(over="ignore"):
        expected = on_ranks(values)
    np.testing.assert_array_equal(summed(values), expected)
    assert np.isnan(expected[:1024]).all() and np.isinf(expected[2048:2560]).all()


def check_every_type_and_shape_is_summed():
    values = terms(4)
    tree = {
        "doubles": values.astype(np.float64).reshape(4, 1, LENGTH),
        "halves": jnp.asarray(values, jnp.bfloat16),
        "scalars": values[:, 0],
        "none": values[:, :0],
        "integers": np.arange(8, dtype=np.int32).reshape(4, 2),
    }
    found = summed(tree)
    for name, leaf in tree.items():
        assert (found[name].shape, found[name].dtype) == (leaf.shape[1:], leaf.dtype)
    exact_sum = values.astype(np.float64).sum(axis=0)
    doubles = found["doubles"][0]
    largest = np.abs(values).max()
    assert np.abs(doubles - exact_sum).max() < 4 * 2**-56 * largest
    # one rounding at the end: as the sum of the rounded terms in float32
    rounded = on_ranks(np.asarray(tree["halves"].astype(jnp.float32)))
    np.testing.assert_array_equal(
        found["halves"], np.asarray(jnp.asarray(rounded).astype(jnp.bfloat16))
    )
    np.testing.assert_array_equal(found["scalars"], on_ranks(values[:, :1].copy())[0])
    np.testing.assert_array_equal(found["integers"], [12, 16])


def gradient_hash(devices, shards, **options):
    """Return the CRC-32 of the mean gradient of a network."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((64, 40)).astype(np.float32)
    params = [rng.standard_normal(shape).astype("f4") for shape in ((40, 32), (32, 10))]

    def loss(params, rows):
        hidden = jax.nn.gelu(rows @ params[0])
        return (jax.nn.logsumexp(hidden @ params[1], axis=1) ** 2).mean()

    axis = None if devices == 1 else "data"
    mean = exact.exact_mean(jax.value_and_grad(loss), shards, axis)
    if axis:
        mean = jax.shard_map(
            mean,
            mesh=Mesh(np.array(jax.devices()[:devices]), ("data",)),
            in_specs=(PartitionSpec(), EACH),
            out_specs=PartitionSpec(),
            **options,
        )
    loss_mean, grads = jax.device_get(jax.jit(mean)(params, rows))
    (expected, plain) = jax.device_get(jax.jit(jax.value_and_grad(loss))(params, rows))
    np.testing.assert_allclose(loss_mean, expected, rtol=1e-6)
    for one, other in zip(grads, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return zlib.crc32(b"".join(leaf.tobytes() for leaf in [loss_mean, *grads]))


def check_a_mean_over_shards_has_one_hash_on_any_number_of_devices():
    hashes = {gradient_hash(devices, 16) for devices in (1, 8)}
    hashes.add(gradient_hash(2, 16, check_vma=False))
    assert len(hashes) == 1, hashes
    assert gradient_hash(1, 4) not in hashes  # shards of another size


def check_what_has_no_exact_sum_is_refused():
    values = terms(4)
    for error, call in [
        ("at most 2 terms, got 1 on each of 4", lambda: summed(values, terms=2)),
        ("a power of two", lambda: summed(values, terms=3)),
        ("got complex64", lambda: summed(values.astype(np.complex64))),
        ("got bool", lambda: summed(values > 0)),
        (
            "outside of a function that",
            lambda: jax.grad(lambda x: summed(x).sum())(values),
        ),
        ("on 4 devices, of equally many rows, got 6", lambda: gradient_hash(4, 6)),
        ("on 2 devices, of equally many rows, got 10", lambda: gradient_hash(2, 10)),
    ]:
        with pytest.raises(BadInput, match=error) as caught:
            call()
        assert "\n" not in str(caught.value)


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_enable_x64", True)
    for check in CHECKS:
        try:
            check()
        except Exception:
            sys.stdout.write(f"{check.__name__}: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{check.__name__}: ok\n")
