"""Flat vectors: registered memory, and pytrees packed into it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate, flat, layout, pack, peers, release, unpack

some = settings(max_examples=60, derandomize=True, deadline=None, database=None)
HOSTS = {"one host": 0, "hosts of two": 2, "hosts of one": 1}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("dtype", ("float16", "float64", "int32", "uint8"))
def test_allocated_memory_is_a_zeroed_vector_of_what_was_asked(host, dtype):
    def program(comm):
        for length in (0, 1, 17, 5000):
            buffer = allocate(comm, length, dtype)
            assert buffer.shape == (length,)
            assert buffer.dtype == dtype
            assert not buffer.any()
            assert flat(comm, buffer) is buffer
            buffer[:] = 7
            release(comm, buffer)
        return not comm.cache.regions

    assert sim.run(program, 4, sim.Uniform(host=host)) == [True] * 4


def test_peers_see_each_others_registered_words_by_rank():
    def program(comm):
        buffer = allocate(comm, 10, np.int64)
        buffer[:] = 100 * comm.rank + np.arange(10)
        comm.Barrier()
        _, views = peers(comm, buffer)
        _, slices = peers(comm, buffer[3:8])
        return [view.tolist() for view in views], [view.tolist() for view in slices]

    want = [[100 * rank + i for i in range(10)] for rank in range(3)]
    for views, slices in sim.run(program, 3):
        assert views == want
        assert slices == [row[3:8] for row in want]


def test_a_view_of_another_dtype_is_seen_in_that_dtype():
    def program(comm):
        memory = allocate(comm, 64, np.uint8)
        words = memory[8:40].view(np.float32)
        words[:] = comm.rank
        comm.Barrier()
        return [view.tolist() for view in peers(comm, words)[1]]

    assert sim.run(program, 2) == [[[0.0] * 8, [1.0] * 8]] * 2


def test_groups_see_their_members_part_of_their_parents_memory():
    def program(comm):
        buffer = allocate(comm, 4, np.int64)
        buffer[:] = comm.rank
        inside = comm.Split(comm.rank % 2, -comm.rank)
        members = [r for r in range(5) if r % 2 == comm.rank % 2][::-1]
        inside.cache.parent = comm, members
        comm.Barrier()
        return [int(view[0]) for view in peers(inside, buffer)[1]]

    assert sim.run(program, 5) == [[4, 2, 0], [3, 1]] * 2 + [[4, 2, 0]]


def test_plain_and_released_memory_has_no_peers():
    def program(comm):
        buffer = allocate(comm, 1000)
        known = peers(comm, buffer) is not None
        plain = peers(comm, np.zeros(1000, np.float32))
        copied = peers(comm, buffer.copy())
        release(comm, buffer)
        return known, plain, copied, peers(comm, buffer)

    assert sim.run(program, 2) == [(True, None, None, None)] * 2


def test_releasing_plain_memory_does_nothing():
    def program(comm):
        kept = allocate(comm, 8)
        release(comm, np.zeros(8))
        return peers(comm, kept) is not None

    assert sim.run(program, 2) == [True] * 2


def test_memory_spanning_hosts_is_plain():
    def program(comm):
        return peers(comm, allocate(comm, 8))

    assert sim.run(program, 4, sim.Uniform(host=2)) == [None] * 4


def test_parts_of_registered_memory_reduce_by_themselves():
    """As buckets do: each slice is reduced, the words between stay."""

    def program(comm):
        metered = Metered(comm)
        buffer = allocate(metered, 60_000, np.float32)
        buffer[:] = comm.rank + np.arange(60_000) % 5
        for part in (slice(0, 20_000), slice(20_001, 40_000), slice(59_999, 60_000)):
            ALLREDUCE["shared"](metered, buffer[part])
        return buffer.copy(), metered.bytes_sent

    for rank, (buffer, sent) in enumerate(sim.run(program, 3)):
        base = np.arange(60_000) % 5
        want = (3 * base + 3).astype(np.float32)
        for untouched in (slice(20_000, 20_001), slice(40_000, 59_999)):
            want[untouched] = rank + base[untouched]
        assert np.array_equal(buffer, want)
        assert sent == 0


@pytest.mark.parametrize("name", sorted(ALLREDUCE.keys() - {"auto"}))
def test_an_empty_end_of_registered_memory_is_reduced_too(name):
    """The address after the last byte may belong to another region."""

    def program(comm):
        first, second = allocate(comm, 16), allocate(comm, 16)
        first[:] = second[:] = comm.rank
        ALLREDUCE[name](comm, first[16:])
        ALLREDUCE[name](comm, second[:0])
        return first.tolist() == second.tolist() == [comm.rank] * 16

    assert sim.run(program, 3) == [True] * 3


def test_many_buffers_of_one_communicator_live_side_by_side():
    def program(comm):
        buffers = [allocate(comm, 9000 + i, np.float32) for i in range(4)]
        for i, buffer in enumerate(buffers):
            buffer[:] = comm.rank + i
        release(comm, buffers.pop(1))
        for buffer in buffers:
            ALLREDUCE["shared"](comm, buffer)
        return [set(buffer.tolist()) for buffer in buffers]

    assert sim.run(program, 2) == [[{1.0}, {5.0}, {7.0}]] * 2


def test_what_cannot_be_a_vector_is_refused_with_advice():
    def program(comm):
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        said = []
        for bad in (np.zeros((4, 4))[:, 1], frozen, [1.0], np.float32(3)):
            with pytest.raises(BadInput, match=f"rank {comm.rank}: expected") as caught:
                flat(comm, bad)
            said.append(str(caught.value))
        return said

    column, frozen, a_list, scalar = sim.run(program, 2)[1]
    assert "np.ascontiguousarray" in column
    assert "buffer.copy()" in frozen
    assert "a list" in a_list
    assert "float32" in scalar


def test_a_buffer_is_flattened_in_place():
    def program(comm):
        buffer = np.zeros((3, 4))
        flat(comm, buffer)[5] = 1
        return buffer.tolist()

    assert sim.run(program, 1)[0][1] == [0, 1, 0, 0]


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
    assert described.length == sum(leaf.size for leaf in jax.tree.leaves(values))
    assert jax.tree.structure(found) == jax.tree.structure(values)
    for before, after in zip(
        jax.tree.leaves(values), jax.tree.leaves(found), strict=True
    ):
        assert before.dtype == after.dtype
        assert before.shape == after.shape
        assert np.array_equal(before, after)
    flattened = [np.ravel(leaf) for leaf in jax.tree.leaves(values)]
    assert np.array_equal(buffer, np.concatenate([*flattened, np.zeros(0)]))


def test_jax_arrays_are_packed_and_what_is_unpacked_is_a_copy():
    tree = {"w": jax.numpy.arange(6.0).reshape(2, 3), "b": jax.numpy.float32(9)}
    described = layout(tree)
    buffer = np.zeros(described.length, np.float32)
    pack(tree, buffer)
    found = unpack(buffer, described)
    buffer[:] = -1
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"] == 9


def test_packing_into_registered_memory_is_what_a_collective_then_reduces():
    def program(comm):
        tree = {"a": np.full((2, 2), comm.rank, np.float32), "b": np.ones(3, "f4")}
        described = layout(tree)
        buffer = allocate(comm, described.length)
        pack(tree, buffer)
        ALLREDUCE["shared"](comm, buffer)
        return jax.tree.map(np.ndarray.tolist, unpack(buffer, described))

    assert sim.run(program, 3) == [{"a": [[3, 3], [3, 3]], "b": [3, 3, 3]}] * 3
