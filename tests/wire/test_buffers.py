import jax
import numpy as np

from dml.wire.buffers import allocate, layout, pack, unpack


def test_what_is_packed_is_unpacked_as_copies():
    rng = np.random.default_rng(0)
    tree = ({"w": rng.standard_normal((2, 3)).astype(np.float32)}, np.float32(7))
    flat = layout(tree)
    buffer = allocate(None, flat.length, np.float32)
    pack(tree, buffer)
    again = unpack(buffer, flat)
    buffer.fill(0)
    assert flat.length == 7
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert np.array_equal(again[0]["w"], tree[0]["w"])
    assert again[1] == 7
