"""Every all-reduce on virtual ranks: right numbers, equal replicas, known order."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given as vary
from hypothesis import settings
from hypothesis import strategies as st

from dml import sim
from dml.conformance.comparisons import check_order, check_results, conform, reduce_case
from dml.conformance.known_results import DTYPES, LONG, OPS, Case, fault, inputs
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, shared
from dml.wire.comm.buffers import allocate
from dml.wire.plans.topology import groups
from tests.wire.comm import orders

SIZES = 1, 2, 3, 5, 7, 8
FLAT = sorted(orders.ORDERS.keys() - {"shared"})
few = settings(max_examples=30)


def virtual(network, seed=0):
    return partial(sim.run, network=network, seed=seed)


def layouts(size: int) -> list[tuple[int, int]]:
    """(ranks on a host, group) for hierarchical ones; 0: one host, groups of hosts."""
    found = [(0, 1), (0, 2), (0, 3), (0, size), (0, 0), (1, 3), (2, 0), (3, 0), (2, 3)]
    return sorted({(host, group) for host, group in found if group <= size})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", orders.BASIC)
def test_every_allreduce_conforms(name, size):
    order = orders.ORDERS.get(name)
    conform(ALLREDUCE[name], sim.run, size, all_pairs=size <= 5, order=order)


@pytest.mark.parametrize("size", (2, 5))
@pytest.mark.parametrize("name", orders.BASIC)
def test_long_buffers_are_reduced_in_order(name, size):
    """Several segments, several stages of shared memory."""
    kinds = [("float32", "sum"), ("float16", "max"), ("int64", "product")]
    check_results(ALLREDUCE[name], sim.run, [Case(size, LONG, *kind) for kind in kinds])
    if order := orders.ORDERS.get(name):
        check_order(ALLREDUCE[name], sim.run, size, order, (LONG, 600_011))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", orders.BASIC)
def test_products_of_complex_numbers_are_equal_on_all_ranks(name, dtype):
    """a b and b a may differ in the last bit, where products are fused with sums."""
    for size, length in ((2, 999), (3, 8), (5, LONG)):

        def multiply(comm, size=size, length=length):
            rng = np.random.default_rng([size, comm.rank])
            parts = rng.normal(size=(2, length))
            buffer = (parts[0] + 1j * parts[1]).astype(dtype)
            ALLREDUCE[name](comm, buffer, np.multiply)
            return buffer.tobytes()

        assert len(set(sim.run(multiply, size))) == 1


@pytest.mark.parametrize(
    "eager, seed, size", [(0, 1, 5), (65536, 2, 4), (1 << 40, 3, 5)]
)
@pytest.mark.parametrize("name", orders.BASIC)
def test_neither_buffered_sends_nor_the_order_of_starts_matter(name, eager, seed, size):
    conform(
        ALLREDUCE[name],
        virtual(sim.Uniform(eager=eager), seed),
        size,
        all_pairs=False,
        extra_lengths=(20_011,),
        order=orders.ORDERS.get(name),
    )


@pytest.mark.parametrize("size", (1, 2, 3, 8))
def test_hierarchical_conforms_in_every_layout_of_groups_and_hosts(size):
    for host, group in layouts(size):
        conform(
            partial(ALLREDUCE["hierarchical"], group=group),
            virtual(sim.Uniform(host=host)),
            size,
            all_pairs=False,
        )


@pytest.mark.parametrize("outside", orders.ORDERS)
@pytest.mark.parametrize("size", (2, 3, 5, 9))
def test_hierarchical_adds_inside_groups_first(size, outside):
    for host, group in layouts(size):
        if outside == "shared" and host:
            continue
        width = host or size
        members = groups(tuple(rank // width for rank in range(size)), group)
        one_host = all(len({r // width for r in ranks}) == 1 for ranks in members)
        if not one_host and host > 1:
            continue  # some groups share memory, some do not

        def order(rows, members=members, one_host=one_host):
            across = orders.ORDERS[outside]
            return orders.hierarchical(rows, members, across, one_host)

        check_order(
            partial(ALLREDUCE["hierarchical"], group=group, outside=ALLREDUCE[outside]),
            virtual(sim.Uniform(host=host)),
            size,
            order,
        )


@pytest.mark.parametrize("name", sorted({*orders.BASIC} - {"shared"}))
def test_ranks_on_several_hosts_conform(name):
    for size, host in ((3, 1), (8, 3)):
        conform(ALLREDUCE[name], virtual(sim.Uniform(host=host)), size, all_pairs=False)


def test_shared_refuses_ranks_on_several_hosts():
    def program(comm):
        for length in (0, 3, 100_000):
            with pytest.raises(BadInput, match=f"rank {comm.rank}.*one host"):
                ALLREDUCE["shared"](comm, np.ones(length))

    sim.run(program, 4, sim.Uniform(host=2))


@pytest.mark.parametrize("name", orders.BASIC)
@pytest.mark.parametrize("dtype", ("uint8", "bool", "complex64", "complex128"))
def test_any_other_dtype_is_reduced(name, dtype):
    size, length = 5, 23
    rows = np.random.default_rng(0).integers(0, 200, (size, length)).astype(dtype)
    if dtype == "bool":
        rows = np.arange(size * length).reshape(size, length) % 7 == 0
    if rows.dtype.kind == "c":
        rows = rows * rows.dtype.type(1 - 2j)
    total = np.add.reduce(rows, axis=0, dtype=dtype)

    def program(comm):
        buffer = rows[comm.rank].copy()
        if (name, dtype) == ("native", "bool"):  # MPI has no sum of truth values
            with pytest.raises(BadInput, match="got add of bool"):
                ALLREDUCE[name](comm, buffer)
            return True
        ALLREDUCE[name](comm, buffer)
        return buffer.dtype == dtype and np.array_equal(buffer, total)

    assert sim.run(program, size) == [True] * size


@pytest.mark.parametrize("name", FLAT)
@few
@vary(data=st.data())
def test_segments_change_no_bit(name, data):
    size = data.draw(st.integers(1, 12), "size")
    length = data.draw(st.integers(0, 300), "length")
    dtype = data.draw(st.sampled_from(DTYPES), "dtype")
    segment = data.draw(st.sampled_from((1, 8, 24, 64, 100, 1 << 18)), "segment")
    eager = data.draw(st.sampled_from((0, 64, 1 << 20)), "eager")
    op = data.draw(st.sampled_from(sorted(OPS)), "op")
    case = Case(size, length, dtype, op)
    off = Case(size, length, "float32", "sum", True)

    def program(comm):
        allreduce = partial(ALLREDUCE[name], segment=segment)
        exact, rounded = inputs(case)[comm.rank].copy(), inputs(off)[comm.rank].copy()
        allreduce(comm, exact, OPS[op])
        allreduce(comm, rounded)
        return fault(case, exact), rounded.tobytes()

    bits = orders.ORDERS[name](inputs(off)).tobytes()
    network = sim.Uniform(eager=eager)
    assert sim.run(program, size, network) == [("", bits)] * size


@few
@vary(data=st.data())
def test_shared_is_right_for_any_stage_block_and_mix_of_buffers(data):
    size = data.draw(st.integers(2, 9), "size")
    stage = 64 * data.draw(st.integers(1, 5), "stage")
    kinds = st.tuples(st.integers(0, 300), st.sampled_from(DTYPES), st.booleans())
    calls = data.draw(st.lists(kinds, min_size=1, max_size=6), "calls")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "STAGE", stage)
        patch.setattr(shared, "SMALL", data.draw(st.integers(0, stage), "small"))
        patch.setattr(shared, "BLOCK", data.draw(st.integers(16, 200), "block"))

        def program(comm):
            registered, said = allocate(comm, 5000, np.uint8), []
            for length, dtype, is_registered in calls:
                memory = registered if is_registered else np.empty(5000, np.uint8)
                case = Case(size, length, dtype, "sum")
                said.append(reduce_case(comm, ALLREDUCE["shared"], case, memory)[0])
            return said

        found = sim.run(program, size, seed=data.draw(st.integers(0, 3), "seed"))
    assert found == [[""] * len(calls)] * size
