"""Every peer receives every piece, one upload a round, in the least rounds."""

import itertools

import numpy as np
import pytest

from dml.wire.plans import swarm


def deliver(rounds, pieces, peers):
    """Play a schedule; return the pieces of each peer and the number of repetitions."""
    has = np.zeros((peers + 1, pieces), bool)
    has[0], repeated = True, 0
    for source, dest, piece in rounds:
        assert len(np.unique(source)) == len(source), "one upload a round"
        assert len(np.unique(dest)) == len(dest), "one receipt a round"
        assert has[source, piece].all(), "a peer uploads what it has"
        repeated += has[dest, piece].sum()
        has[dest, piece] = True
    return has, repeated


@pytest.mark.parametrize("peers", (1, 2, 4, 8, 64))
@pytest.mark.parametrize("pieces", (1, 2, 3, 7, 20))
def test_the_cube_reaches_the_bound_and_repeats_no_piece(pieces, peers):
    rounds = swarm.cube(pieces, peers)
    has, repeated = deliver(rounds, pieces, peers)
    assert has.all() and not repeated
    assert len(rounds) == swarm.least_rounds(pieces, peers)


@pytest.mark.parametrize("peers", (1, 3, 7, 31))
@pytest.mark.parametrize("pieces", (1, 2, 5, 20))
def test_one_peer_less_than_a_power_of_two_takes_one_round_more(pieces, peers):
    rounds = swarm.corner(pieces, peers)
    has, repeated = deliver(rounds, pieces, peers)
    assert has.all() and not repeated
    assert len(rounds) == swarm.least_rounds(pieces, peers) + 1


@pytest.mark.parametrize("peers", (1, 3, 4, 7, 13))
@pytest.mark.parametrize("pieces", (1, 4, 9))
def test_a_random_swarm_delivers_all_pieces_not_before_the_bound(pieces, peers):
    rounds = swarm.rarest_first(pieces, peers, seed=2)
    has, repeated = deliver(rounds, pieces, peers)
    assert has.all() and not repeated
    least = swarm.least_rounds(pieces, peers)
    assert least <= len(rounds) <= least + pieces


def test_the_bound_is_least_by_exhaustive_search():
    def reachable(peers, pieces):
        """Return the least rounds, by breadth over sets of pieces of all peers."""
        full = (1 << pieces) - 1
        states, taken = {(0,) * peers}, 0
        while (full,) * peers not in states:
            taken += 1
            states = {after for state in states for after in successors(state, full)}
        return taken

    def successors(state, full):
        """Yield the states after one upload of each holder; downloads are unlimited."""
        choices = []
        for have in (full, *state):
            bits = [1 << b for b in range(full.bit_length()) if have >> b & 1]
            choices.append([(d, b) for d in range(len(state)) for b in bits] or [None])
        for sends in itertools.product(*choices):
            after = list(state)
            for send in filter(None, sends):
                after[send[0]] |= send[1]
            yield tuple(sorted(after))

    for peers, pieces in ((1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (2, 3)):
        assert reachable(peers, pieces) == swarm.least_rounds(pieces, peers)


@pytest.mark.parametrize("peers", range(1, 18))
def test_a_schedule_is_that_of_a_cube_if_there_is_one(peers):
    rounds = swarm.schedule(4, peers)
    has, _ = deliver(rounds, 4, peers)
    assert has.all()
    least = swarm.least_rounds(4, peers)
    if peers in (1, 2, 4, 8, 16):
        assert len(rounds) == least
    if peers in (3, 7, 15):
        assert len(rounds) == least + 1


def test_random_swarms_of_one_seed_are_equal():
    once, again = (swarm.rarest_first(4, 6, seed) for seed in (3, 3))
    for one, other in zip(once, again, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
