"""Order-free sums: the same bytes by every all-reduce, on any number of ranks."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput, Rows
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.buffers import allocate, layout
from dml.wire.reducers import fixed_point
from dml.wire.reducers.fixed_point import BLOCK, order_free

TERMS, LENGTH = 31, 3 * BLOCK + 77
SIZES = (*range(1, 10), 16, 31)


def terms(count=TERMS, length=LENGTH):
    """Return terms whose float32 sum depends on the order; the last one is a scalar."""
    draws = np.random.default_rng(0)
    spread = np.exp(draws.uniform(-4, 4, (count, length)))
    return (draws.standard_normal((count, length)) * spread).astype(np.float32)


def reduce(comm, values, name="star", bits=32, registered=False, scalars=1):
    """Sum this rank's consecutive terms of `values`; return the bytes of the sum."""
    reducer = order_free(ALLREDUCE[name], bits)
    state = reducer.init(layout(np.zeros(values.shape[1] - scalars, np.float32)))
    first, stop = (len(values) * (comm.rank + more) // comm.size for more in (0, 1))
    own = [term.copy() for term in values[first:stop]]
    if registered:
        buffer = allocate(comm, values.shape[1])
        buffer[:] = own[0]
        own[0] = buffer
    if len(values) == comm.size:
        reducer.reduce(comm, own[0], state)
    else:
        reducer.reduce_terms(comm, own, state)
    return own[0].tobytes()


def total(values, bits=32):
    """Return the sum of the terms on one rank, as float32."""
    (found,) = sim.run(partial(reduce, values=values, bits=bits), 1)
    return np.frombuffer(found, np.float32)


@pytest.mark.parametrize("bits", (32, 64))
@pytest.mark.parametrize("size", SIZES)
def test_all_allreduces_on_any_number_of_ranks_return_the_same_bytes(size, bits):
    values = terms()
    expected = total(values, bits).tobytes()
    for name in ALLREDUCE:
        found = sim.run(partial(reduce, values=values, name=name, bits=bits), size)
        assert set(found) == {expected}, name


@pytest.mark.parametrize("length", (1, 2, BLOCK, LENGTH))
@pytest.mark.parametrize("size", (2, 3, 8))
def test_registered_buffers_have_the_bytes_of_plain_ones(size, length):
    """Registered buffers are summed in place, plain ones by an all-reduce."""
    values = terms(size, length)
    for name in ("shared", "auto", "ring"):
        program = partial(reduce, values=values, name=name, registered=True)
        assert set(sim.run(program, size)) == {total(values).tobytes()}


@pytest.mark.parametrize(("bits", "bound"), ((32, 2**-25), (64, 2**-46)))
def test_each_term_is_rounded_relative_to_the_largest_value_of_its_block(bits, bound):
    values = terms(64)
    exact = values.astype(np.float64).sum(0)
    for part in (slice(start, start + BLOCK) for start in range(0, LENGTH - 1, BLOCK)):
        part = slice(part.start, min(part.stop, LENGTH - 1))
        largest = 2.0 ** np.ceil(np.log2(np.abs(values[:, part]).max()))
        errors = np.abs(total(values, bits)[part] - exact[part])
        # the result is rounded to float32 once more
        assert (errors <= 64 * largest * bound + np.abs(exact[part]) * 2**-24).all()


def test_scalars_after_the_gradient_do_not_round_with_it():
    values = np.array([[1e-6, 3.0], [2e-6, 1e6]], np.float32)
    assert total(values).tolist() == pytest.approx([3e-6, 1000003.0], rel=1e-6)


@pytest.mark.parametrize("bits", (32, 64))
def test_zeros_tiny_huge_and_infinite_values_have_defined_sums(bits):
    values = np.zeros((64, 6 * BLOCK), np.float32)
    blocks = values.reshape(64, 6, BLOCK)
    blocks[:, 1] = 1e-42  # below the smallest normal number
    blocks[:, 2] = np.float32(1.75 * 2.0**121)  # 64 of them are below the largest
    blocks[0, 3, 7], blocks[1, 4, 2] = np.nan, -np.inf
    blocks[:, 5] = np.nextafter(np.float32(2), np.float32(0))
    found = total(values, bits).reshape(6, BLOCK)
    assert not found[0].any()
    assert np.abs(found[1]).max() <= 64 * 2.0**-121
    assert (found[2] == np.float32(1.75 * 2.0**127)).all()
    assert np.isnan(found[3]).all() and np.isnan(found[4]).all()
    assert found[5] == pytest.approx(np.full(BLOCK, 128.0))  # no integer overflows
    for size in (2, 3):
        some = values[:size]
        for name in ("shared", "ring"):
            for registered in (False, True):
                program = partial(reduce, values=some, name=name, bits=bits)
                found = sim.run(partial(program, registered=registered), size)
                assert set(found) == {total(some, bits).tobytes()}


def test_integers_do_not_overflow_below_twice_the_number_of_terms():
    values = np.full((127, 3), np.nextafter(np.float32(2), np.float32(0)))
    assert total(values) == pytest.approx(np.full(3, 254.0))


@pytest.mark.parametrize("bits", (32, 64))
def test_segments_have_their_own_exponents(monkeypatch, bits):
    values = terms(4)
    expected = total(values, bits).tobytes()
    monkeypatch.setattr(fixed_point, "SEGMENT", 2 * BLOCK)
    assert total(values, bits).tobytes() == expected


@pytest.mark.parametrize("size", (2, 3, 4, 5))
def test_segments_of_a_ring_grow_with_its_ranks(monkeypatch, size):
    values = terms(size, 9 * BLOCK + 3)
    values[0, BLOCK + 7] = np.inf
    expected = total(values).tobytes()
    monkeypatch.setattr(fixed_point, "RING_SEGMENT", 2 * BLOCK)
    monkeypatch.setattr(fixed_point, "RING_PART", BLOCK)
    found = sim.run(partial(reduce, values=values, name="ring"), size)
    assert set(found) == {expected}


def test_a_server_combines_gradients_in_any_order():
    draws = np.random.default_rng(1)
    values = terms(5, 12 * 40).reshape(5, 40, 12)
    rows = [np.sort(draws.permutation(90)[:40]).astype(np.int32) for _ in range(4)]
    updates = [*map(Rows, rows, values), Rows(slice(20, 60), values[4])]
    combine = order_free(ALLREDUCE["star"]).combine
    found = combine(updates)
    again = combine(updates[::-1])
    assert (found.index == again.index).all()
    assert found.values.tobytes() == again.values.tobytes()
    dense = np.zeros((5, 90, 12))
    for term, (index, added) in zip(dense, updates, strict=True):
        term[index] = added
    assert found.index.tolist() == np.flatnonzero(dense.any((0, 2))).tolist()
    exact = dense.sum(0)[found.index]
    # five terms, each rounded to 2^-25 of at most twice the largest value
    bound = 8 * 2**-24 * float(np.abs(values).max())
    assert found.values == pytest.approx(exact, abs=bound)


def test_terms_that_cannot_be_summed_are_refused():
    values = terms(128, 8)
    for call, message in (
        (partial(total, values), "at most 64 terms, got 128 on each of 1 ranks"),
        (partial(total, values.astype(np.float64)), "expected float32 .* got float64"),
        (partial(order_free, None, 16), "expected integers of 32 or 64 bits, got 16"),
        (partial(order_free, None, 32, 48), "expected at most a power of two"),
    ):
        with pytest.raises(BadInput, match=message):
            call()
    assert total(values, 64) == pytest.approx(values.astype(np.float64).sum(0))
    some = [Rows(slice(0, 8), np.ones((8, 1), np.float32))] * 128
    with pytest.raises(BadInput, match="at most 64 gradients in an update, got 128"):
        order_free(ALLREDUCE["star"]).combine(some)


@pytest.mark.parametrize("name", ("ring", "shared"))
@pytest.mark.parametrize("size", (2, 3))
def test_one_term_of_each_rank_is_checked(name, size):
    for dtype, terms_of, message in (
        (np.float64, 64, "expected float32 .* got float64"),
        (np.float32, 1, f"at most 1 terms, got 1 on each of {size} ranks"),
    ):

        def program(comm, dtype=dtype, terms_of=terms_of):
            buffer = allocate(comm, 8, dtype)
            reducer = order_free(ALLREDUCE[name], most=terms_of)
            reducer.reduce(comm, buffer, reducer.init(layout(np.zeros(8, dtype))))

        with pytest.raises(BadInput, match=message):
            sim.run(program, size)


def reduce_own_part(comm, values, parts, bits=32, most=0):
    """Sum this rank's terms by parts; return this rank's part of the sum."""
    reducer = order_free(ALLREDUCE["tree"], bits, most)
    state = reducer.init(layout(np.zeros(values.shape[1] - 1, np.float32)))
    first, stop = (len(values) * (comm.rank + more) // comm.size for more in (0, 1))
    own = [term.copy() for term in values[first:stop]]
    reducer.reduce_parts(comm, own, parts, state)
    return own[0][parts[comm.rank]]


@pytest.mark.parametrize("bits", (32, 64))
@pytest.mark.parametrize("cuts", [(), (700,), (0, BLOCK), (5, 5, 600, LENGTH - 1)])
def test_parts_on_their_owners_have_the_bytes_of_the_sum(cuts, bits):
    values, edges = terms(), [0, *cuts, LENGTH]
    parts = [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    program = partial(reduce_own_part, values=values, parts=parts, bits=bits)
    found = np.concatenate(sim.run(program, len(parts)))
    assert found.tobytes() == total(values, bits).tobytes()


def test_too_many_terms_of_parts_are_refused():
    program = partial(
        reduce_own_part, values=terms(4), parts=[slice(0, LENGTH)], most=2
    )
    with pytest.raises(BadInput, match="expected at most 2 terms, got 4"):
        sim.run(program, 1)
