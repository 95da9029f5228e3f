"""The majority vote of signs: every element, every tie, every byte."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from dml.wire.reducers.names import reducer
from dml.wire.reducers.vote import WORD


def term(length, rank):
    """Return a vector with zeros, of which both signs occur."""
    draws = np.random.default_rng([length, rank])
    return draws.integers(-2, 3, length).astype(np.float32) / 4


def voted(comm, length, name="vote", terms=term):
    """Return the reduced term, and the bytes sent without those of the scale."""
    made, metered = reducer(name, ALLREDUCE["ring"]), Metered(comm)
    buffer = terms(length, comm.rank)
    state = made.init(layout(np.zeros(length, np.float32)))
    made.reduce(metered, buffer, state)
    return buffer, metered.bytes_sent


@pytest.mark.parametrize("size", (1, 2, 3, 4, 5, 8, 9, 16, 31))
@pytest.mark.parametrize("length", (1, 63, 64, 65, 1000))
def test_an_element_has_the_sign_of_most_ranks_and_ties_are_positive(size, length):
    terms = np.array([term(length, rank) for rank in range(size)])
    negative = (terms < 0).sum(axis=0) > size / 2
    scale = np.abs(terms).mean(axis=1).sum()
    for found, _ in sim.run(partial(voted, length=length), size):
        assert found == pytest.approx(np.where(negative, -scale, scale), rel=1e-6)


def test_a_tie_of_all_elements_is_positive():
    def opposite(length, rank):
        return np.full(length, (-1.0) ** rank, np.float32)

    for size in (2, 4, 6):
        found, _ = sim.run(partial(voted, length=9, terms=opposite), size)[0]
        assert (found == size).all()


def test_the_vote_of_many_blocks_of_words_is_that_of_one_block():
    length = 200_000  # 3125 words on each of 1 rank
    terms = np.array([term(length, rank) for rank in range(3)])
    found, _ = sim.run(partial(voted, length=length), 3)[0]
    assert ((found < 0) == ((terms < 0).sum(axis=0) >= 2)).all()


@pytest.mark.parametrize("length", (65, 640))
def test_one_rank_has_the_scaled_sign(length):
    vote, sign = (
        sim.run(partial(voted, length=length, name=n), 1)[0][0] for n in NAMES
    )
    assert vote.tobytes() == sign.tobytes()


NAMES = ("vote", "sign")


@pytest.mark.parametrize("size", (1, 2, 3, 5))
def test_bytes_are_those_of_packed_signs_twice(size):
    words = size * 7  # equal chunks
    found = sim.run(partial(voted, length=words * WORD), size)
    scale = sum(sim.run(scale_bytes, size))
    packed = 2 * (size - 1) * 8 * 7
    assert sum(nbytes for _, nbytes in found) == size * packed + scale


def scale_bytes(comm):
    metered = Metered(comm)
    ALLREDUCE["ring"](metered, np.zeros(1, np.float32), op=np.add)
    return metered.bytes_sent


@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_values_that_are_not_finite_remain_visible(bad):
    def spoiled(length, rank):
        vector = term(length, rank)
        vector[rank] = bad if rank == 1 else vector[rank]
        return vector

    for found, _ in sim.run(partial(voted, length=100, terms=spoiled), 3):
        assert not np.isfinite(found).any()


def test_feedback_is_refused_with_the_reason():
    with pytest.raises(BadInput, match="a majority is not a sum of codes"):
        reducer("vote+feedback", ALLREDUCE["ring"])
