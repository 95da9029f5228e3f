"""Transports of codes: equal replicas, nothing lost, counted and predicted bytes."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.comm import Metered
from dml.wire.costs import codes as cost
from dml.wire.costs.allreduce import Rates
from dml.wire.plans.topology import chunks
from dml.wire.reducers import transports
from dml.wire.reducers.codecs.hashing import seed_of
from dml.wire.reducers.codecs.largest import add_at, top_k
from dml.wire.reducers.codecs.levels import int8
from dml.wire.reducers.codecs.signs import sign
from dml.wire.reducers.makers import MAKERS, named_codec
from dml.wire.reducers.names import CODES, TRANSPORTS

FEW = {"top_k": (0.1,), "qsgd": (4,)}  # arguments
CODECS = {name: named_codec(name)(*FEW.get(name, ())) for name in CODES}
LENGTH = 1231
HOSTS = sim.Uniform(host=3)  # three ranks on a host
every = pytest.mark.parametrize("name", TRANSPORTS)


def term_of(rank, length=LENGTH):
    draws = np.random.default_rng(rank)
    return (draws.standard_normal(length) + 0.2).astype(np.float32)


def run(comm, name, codec, length=LENGTH):
    """Return the sum, this rank's errors and the bytes that it sent."""
    comm = Metered(comm)
    term, lost = term_of(comm.rank, length), np.zeros(length, np.float32)
    if name == "two_level":  # sets up its communicators at the first call
        transports.two_level(codec, comm, term.copy(), None, 0)
    sent = comm.bytes_sent
    seed = seed_of(0, comm.rank)
    transports.TRANSPORTS[name](codec, comm, term, lost, seed)
    return term, lost, comm.bytes_sent - sent


def test_every_transport_and_code_has_a_name():
    assert list(transports.TRANSPORTS) == list(TRANSPORTS) == list(cost.SECONDS)
    assert set(CODES) <= set(MAKERS)


@every
@pytest.mark.parametrize("code", CODECS)
@pytest.mark.parametrize("size", (1, 2, 5, 6, 7))
def test_replicas_are_equal_and_errors_are_what_the_sum_lacks(name, code, size):
    program = partial(run, name=name, codec=CODECS[code])
    found = sim.run(program, size, HOSTS)
    assert len({total.tobytes() for total, _, _ in found}) == 1
    exact = sum(term_of(rank).astype(np.float64) for rank in range(size))
    missing = sum(lost.astype(np.float64) for _, lost, _ in found)
    assert found[0][0] + missing == pytest.approx(exact, abs=3e-5 * size)
    assert np.abs(missing).max() > 1e-4


@every
@pytest.mark.parametrize("length", (0, 1, 2, 3, 7))
def test_lengths_below_the_number_of_ranks(name, length):
    program = partial(run, name=name, codec=int8(), length=length)
    for total, _, _ in sim.run(program, 5, HOSTS):
        exact = sum(term_of(rank, length) for rank in range(5))
        assert total == pytest.approx(exact, abs=0.2)


@pytest.mark.parametrize("code", CODECS)
def test_bytes_on_the_wire_are_those_of_the_codes_of_chunks(code):
    codec, size = CODECS[code], 6
    chunk = [codec.nbytes(c.stop - c.start) for c in chunks(LENGTH, size)]
    whole = [codec.nbytes(c.stop - c.start) for c in chunks(LENGTH, 3)]
    sums = (size - 1) * sum(chunk)  # an all-gather of p codes, over all ranks
    exact = {
        "gather": size * (size - 1) * codec.nbytes(LENGTH),
        "scatter": (size - 1) * sum(chunk) + sums,
        "ring": (size - 1) * sum(chunk) + sums,
    }
    halves = [
        [codec.nbytes(h.stop - h.start) for h in chunks(c.stop - c.start, 2)]
        for c in chunks(LENGTH, 3)
    ]
    leaves = sum(map(sum, halves))
    # two hosts of three ranks: 2 codes of each chunk inside, one of each half across,
    # and the codes of the halves back
    exact["two_level"] = 2 * 2 * sum(whole) + leaves + leaves + 2 * 2 * leaves
    for name, nbytes in exact.items():
        program = partial(run, name=name, codec=codec)
        found = sim.run(program, size, HOSTS)
        assert sum(sent for _, _, sent in found) == nbytes


@pytest.mark.parametrize("name", ("gather", "scatter", "ring"))
def test_predicted_seconds_are_those_of_the_virtual_network(name):
    codec, size, length = sign(), 6, 6 * 512
    rates = Rates(alpha=2e-6, beta=1e-9, gamma=0.0)

    def program(comm):
        start = comm.Wtime()
        transports.TRANSPORTS[name](codec, comm, term_of(comm.rank, length), None, 0)
        return comm.Wtime() - start

    seconds = max(sim.run(program, size, sim.Uniform(*rates[:3])))
    job = cost.Job(size, length, codec.nbytes, encode=0, decode=0)
    assert seconds == pytest.approx(cost.seconds(name, job, rates))


def test_the_choice_follows_the_predicted_seconds():
    rates = Rates(alpha=1e-5, beta=1e-8, gamma=0.0)

    def choice(size, length, groups=()):
        return cost.choose(cost.Job(size, length, sign().nbytes, groups), rates)

    assert choice(2, 1 << 20) == "gather"  # as many bytes, fewer roundings
    assert choice(8, 64) == "gather"  # fewer rounds
    assert choice(8, 1 << 20) == "scatter"  # fewer bytes
    assert choice(64, 1 << 14, (8,) * 8) == "two_level"  # fewer rounds

    def program(comm):
        return [
            transports.chosen_transport(codec, comm, 1 << 20)
            for codec in (sign(), top_k(0.01))
        ]

    network = sim.Uniform(*rates[:3])
    assert sim.run(program, 8, network=network) == [["scatter", "gather"]] * 8


def test_errors_of_requantised_hops_grow_with_the_ranks():
    def error(name, size):
        (total, _, _), *_ = sim.run(partial(run, name=name, codec=int8()), size)
        exact = sum(term_of(rank) for rank in range(size))
        return ((total - exact) ** 2).sum() / (exact**2).sum()

    ring, scatter, gather = (
        [error(name, size) for size in (2, 16)]
        for name in ("ring", "scatter", "gather")
    )
    assert ring[1] > 2 * ring[0]
    assert ring[1] > 3 * scatter[1]
    assert gather[1] < scatter[1]


@pytest.mark.parametrize("positions", ([5, 5], [9, 3], [-1, 2], [2, LENGTH], [-5, -4]))
@every
def test_positions_that_are_not_those_of_a_code_are_refused(name, positions):
    codec = top_k(8 / LENGTH)  # 2 elements of a chunk

    def encode_badly(values, code, seed):
        codec.encode(values, code, seed)
        code[:8].view(np.int32)[:] = positions

    def program(comm):
        bad = codec._replace(encode=encode_badly)
        call = transports.TRANSPORTS[name]
        call(bad if comm.rank == 2 else codec, comm, term_of(comm.rank), None, 0)

    with pytest.raises(BadInput, match="distinct ascending positions below") as refused:
        sim.run(program, 4, sim.Uniform(host=2))
    if name == "gather":
        assert "of rank 2 of 4 with" in str(refused.value)


def test_a_refused_position_changes_no_memory_outside_of_the_sum():
    memory = np.zeros(30, np.float32)
    for bad in (-1, 10, -10, 2**31 - 1):
        positions = np.array([0, bad], np.int32)
        assert add_at(positions, np.ones(2, np.float32), memory[10:20]) == 1
    assert np.flatnonzero(memory).tolist() == [10]
