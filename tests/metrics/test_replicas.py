"""Replicas prove by hash that they are equal, on devices of a process and on ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.metrics.replicas import fingerprints, first_difference
from tests.checks import said

RNG = np.random.default_rng(0)
PARAMS = {
    "dense": {"bias": np.ones(3), "kernel": np.float32(RNG.normal(size=(2, 3)))},
    "empty": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False, True]),
    "half": np.asarray(jnp.asarray(RNG.normal(size=7), jnp.bfloat16)),
    "scalar": np.int32(7),
    "small": np.int8([-1, 0, 1]),
    "wave": np.complex64([1 + 2j, 3]),
    "wide": np.float64(RNG.normal(size=4)),
}
NAMES = [
    jax.tree_util.keystr(path)
    for path, leaf in jax.tree_util.tree_leaves_with_path(PARAMS)
]


def on_jax(params):
    """Leaves as arrays of jax; float64 stays numpy's, as jax would narrow it."""
    return jax.tree.map(lambda x: x if x.dtype == float else jnp.asarray(x), params)


def flipped(params, number, bit):
    """Return params with one bit of leaf `number` turned."""
    leaves, tree = jax.tree.flatten(params)
    data = bytearray(np.asarray(leaves[number]).tobytes())
    data[bit // 8] ^= 1 << bit % 8
    leaf = np.frombuffer(bytes(data), leaves[number].dtype)
    leaves[number] = leaf.reshape(leaves[number].shape)
    return jax.tree.unflatten(tree, leaves)


def on_ranks(*replicas):
    return sim.run(
        lambda comm: first_difference(replicas[comm.rank], comm), len(replicas)
    )


@pytest.mark.parametrize("move", (lambda params: params, on_jax))
def test_any_single_bit_that_differs_is_found_by_its_leafs_name(move):
    params = move(PARAMS)
    with jax.transfer_guard("disallow"):  # as in training
        plain = fingerprints(params)
    np.testing.assert_array_equal(plain, fingerprints(PARAMS))
    for number, (name, leaf) in enumerate(
        zip(NAMES, jax.tree.leaves(PARAMS), strict=True)
    ):  # of a bool, only the last bit means anything
        bits = range(0, leaf.nbytes * 8, 8 if leaf.dtype == bool else 1)
        for bit in bits if move is not on_jax else bits[:: max(len(bits) // 4, 1)]:
            found = fingerprints(move(flipped(PARAMS, number, bit)))
            assert (found != plain).nonzero()[1].tolist() == [number], (name, bit)


@pytest.mark.parametrize("who", range(3))
def test_a_rank_that_differs_is_seen_by_all_and_the_first_leaf_is_named(who):
    replicas = [PARAMS] * 3
    assert on_ranks(*replicas) == on_ranks({}, {}, {}) == [None] * 3
    later = NAMES.index("['wide']")
    replicas[who] = flipped(PARAMS, later, 63)
    assert on_ranks(*replicas) == ["['wide']"] * 3
    replicas[who] = flipped(replicas[who], 1, 0)
    assert on_ranks(*replicas) == ["['dense']['kernel']"] * 3


def test_elements_that_are_swapped_are_found():
    """Also x and -x, whose words differ by the sign's bit alone."""
    kernel = np.float32(RNG.normal(size=64))
    kernel[1] = -kernel[9]
    plain = fingerprints(kernel)
    for one in range(64):
        for other in (9, 33):
            swapped = kernel.copy()
            swapped[[one, other]] = kernel[[other, one]]
            assert (fingerprints(swapped) == plain).all() == (one == other)


def test_shapes_alone_do_not_make_a_difference_but_signs_of_zero_do():
    assert fingerprints(np.float32([0.0])) != fingerprints(np.float32([-0.0]))
    assert fingerprints(np.zeros(8)) != fingerprints(np.zeros(9))


def test_one_device_of_a_process_that_differs_is_found():
    assert said("tests.metrics.replicas_main") == "find_each_device: ok\n"
