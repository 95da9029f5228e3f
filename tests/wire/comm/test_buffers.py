"""Flat vectors: registered memory, and pytrees packed into it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, AUTO
from dml.wire.comm.buffers import (
    allocate,
    flat,
    layout,
    pack,
    registered_views,
    release,
    unpack,
)

some = settings(max_examples=60)


@pytest.mark.parametrize("host", (0, 2, 1), ids=["one host", "two", "one each"])
@pytest.mark.parametrize("dtype", ("float16", "float64", "int32", "uint8"))
def test_allocated_memory_is_a_zeroed_vector_of_the_requested_length(host, dtype):
    def program(comm):
        for length in (0, 1, 17, 5000):
            buffer = allocate(comm, length, dtype)
            assert buffer.shape == (length,)
            assert buffer.dtype == dtype
            assert not buffer.any()
            assert flat(comm, buffer) is buffer
            assert (registered_views(comm, buffer) is None) == (host > 0)
            buffer[:] = 7
            release(comm, buffer)
        assert not comm.cache.regions

    sim.run(program, 4, sim.Uniform(host=host))


def test_peers_see_each_others_registered_words_by_rank():
    """Also slices of them in another dtype, and those of the members of a group."""

    def program(comm):
        buffer = allocate(comm, 10, np.int64)
        buffer[:] = 100 * comm.rank + np.arange(10)
        group = comm.Split(comm.rank % 2, -comm.rank)
        group.cache.parent = comm, [r for r in range(5) if r % 2 == comm.rank % 2][::-1]
        comm.Barrier()
        part = buffer[3:8].view(np.int32)
        return [
            [view.tolist() for view in registered_views(comm, buffer)[1]],
            [view[::2].tolist() for view in registered_views(comm, part)[1]],
            [view[0] // 100 for view in registered_views(group, buffer)[1]],
        ]

    want = [[100 * rank + i for i in range(10)] for rank in range(5)]
    for rank, (views, parts, members) in enumerate(sim.run(program, 5)):
        assert views == want
        assert parts == [row[3:8] for row in want]
        assert members == [[4, 2, 0], [3, 1]][rank % 2]


def test_plain_and_released_memory_has_no_registered_views():
    def program(comm):
        def registered(*buffers):
            return [registered_views(comm, one) is not None for one in buffers]

        buffer, other = allocate(comm, 1000), allocate(comm, 1000)
        plain = np.zeros(1000, np.float32)
        release(comm, plain)  # does nothing
        before = registered(buffer, other, plain, buffer.copy())
        release(comm, buffer)
        return before, registered(buffer, other)

    assert sim.run(program, 2) == [([True, True, False, False], [False, True])] * 2


@pytest.mark.parametrize("name", sorted(ALLREDUCE.keys() - {*AUTO}))
def test_an_empty_end_of_registered_memory_is_reduced_too(name):
    """The address after the last byte may belong to another region."""

    def program(comm):
        first, second = allocate(comm, 16), allocate(comm, 16)
        first[:] = second[:] = comm.rank
        ALLREDUCE[name](comm, first[16:])
        ALLREDUCE[name](comm, second[:0])
        return first.tolist() == second.tolist() == [comm.rank] * 16

    assert sim.run(program, 3) == [True] * 3


@pytest.mark.parametrize(
    "bad, advice",
    [
        (np.zeros((4, 4))[:, 1], "np.ascontiguousarray"),
        (np.broadcast_to(0.0, 1), "buffer.copy()"),
        ([1.0], "a list"),
        (np.float32(3), "float32"),
    ],
)
def test_what_cannot_be_a_vector_is_refused_with_advice(bad, advice):
    with pytest.raises(BadInput, match=f"rank 0: expected .*{advice}"):
        sim.run(lambda comm: flat(comm, bad), 1)


leaves = st.tuples(
    st.sampled_from(("float16", "float32")), st.lists(st.integers(0, 4), max_size=3)
)


@some
@given(
    tree=st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from("abc"), inner), st.lists(inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_any_pytree_comes_back_from_a_vector_with_its_shapes_and_dtypes(tree):
    counter = iter(range(10**6))

    def leaf(kind):
        dtype, shape = kind
        count = int(np.prod(shape, dtype=int))
        words = np.array([next(counter) % 2000 for _ in range(count)])
        return words.reshape(shape).astype(dtype)

    values = jax.tree.map(leaf, tree, is_leaf=lambda node: isinstance(node, tuple))
    described = layout(values)
    buffer = np.zeros(described.length, np.float32)
    pack(values, buffer)
    found = unpack(buffer, described)
    packed = buffer.copy()
    buffer[:] = -1  # what is unpacked is a copy
    assert described.length == sum(leaf.size for leaf in jax.tree.leaves(values))
    assert jax.tree.structure(found) == jax.tree.structure(values)
    for before, after in zip(
        jax.tree.leaves(values), jax.tree.leaves(found), strict=True
    ):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert np.array_equal(before, after)
    flattened = [np.ravel(leaf) for leaf in jax.tree.leaves(values)]
    assert np.array_equal(packed, np.concatenate([*flattened, np.zeros(0)]))
