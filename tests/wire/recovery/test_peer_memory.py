"""States in peers' memory: every bit comes back from the newest complete save."""

from itertools import combinations

import ml_dtypes
import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.comm import Metered
from dml.wire.plans.placement import enumerated, groups, recoverable, ring
from dml.wire.recovery.catalogue import Unrecoverable, newest
from dml.wire.recovery.packing import pack, unpack
from dml.wire.recovery.peer_memory import PeerMemory


def state(rank, number):
    """Return arrays whose dtypes, shapes and values depend on the rank."""
    random = np.random.default_rng((rank, number))
    return [
        random.normal(size=(rank + 1, 3)).astype(np.float32),
        random.integers(0, 9, size=2 * rank),
        np.float64(random.normal()),
        random.normal(size=5).astype(ml_dtypes.bfloat16),
    ]


def same(arrays, others):
    kinds = [(np.shape(a), np.asarray(a).dtype) for a in arrays]
    return kinds == [(np.shape(a), np.asarray(a).dtype) for a in others] and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(arrays, others, strict=True)
    )


def test_packed_arrays_have_the_same_bits():
    for rank in range(3):
        assert same(unpack(pack(state(rank, 1))), state(rank, 1))
    transposed = np.arange(6.0).reshape(2, 3).T
    assert same(unpack(pack([transposed])), [transposed])
    assert unpack(pack([])) == []


def replaced(comm, failed, size):
    """Return the communicator and the role of a rank, or None for a failed rank.

    Ranks from `size` are spare; they replace the failed ranks in order.
    """
    spares = dict(zip(range(size, comm.size), sorted(failed), strict=True))
    role = spares.get(comm.rank, comm.rank)
    part = comm.Split(comm.rank in failed, key=role)
    return None if comm.rank in failed else (part, role)


def recover(placement, failed, saves=2):
    """Save, replace failed ranks, and restore; return the number or the error."""
    size = placement.size

    def program(comm):
        memory = PeerMemory()
        training = comm.Split(comm.rank >= size)
        if comm.rank < size:
            for number in range(1, saves + 1):
                memory.save(training, placement, number, state(comm.rank, number))
        if (place := replaced(comm, failed, size)) is None:
            return None
        new, role = place
        try:
            number, states = memory.restore(new, [role])
        except Unrecoverable as error:
            return str(error)
        assert list(states) == [role] and same(states[role], state(role, number))
        return number

    results = sim.run(program, size + len(failed))
    survivors = [results[r] for r in range(len(results)) if r not in failed]
    assert len(set(survivors)) == 1  # all ranks have the same result
    return survivors[0]


@pytest.mark.parametrize(
    "placement", [groups(6, 2), groups(7, 3), ring(5, 2), ring(4, 3), groups(3, 1)]
)
def test_states_are_restored_from_every_recoverable_set_of_failures(placement):
    for count in range(1, min(4, placement.size)):
        for failed in combinations(range(placement.size), count):
            result = recover(placement, failed, saves=1)
            if recoverable(placement, failed):
                assert result == 1
            else:
                assert "expected a save with a copy of each" in result
                assert "resume from a checkpoint on disk" in result


def test_the_newest_of_several_saves_is_restored_and_two_are_stored():
    assert recover(groups(4, 2), failed=(1,), saves=5) == 5

    def program(comm):
        memory = PeerMemory()
        for number in (1, 2, 3):
            memory.save(comm, groups(4, 2), number, state(comm.rank, number))
        return memory.numbers

    numbers = sim.run(program, 4)
    assert numbers[2] == numbers[3] == {2: [2, 3], 3: [2, 3]}


class Failed(Exception):
    """A peer has failed during an exchange."""


class Failing:
    """A communicator whose exchanges fail after some have succeeded."""

    def __init__(self, comm, successes):
        self.comm, self.successes = comm, successes

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def Waitall(self, requests):
        if not self.successes:
            raise Failed
        self.successes -= 1
        self.comm.Waitall(requests)


@pytest.mark.parametrize("successes", (0, 1))
def test_a_failure_during_a_save_leaves_the_previous_one(successes):
    """Save 3 fails on ranks 0 and 1, as sizes or states are exchanged."""
    placement = groups(4, 2)

    def program(comm):
        memory = PeerMemory()
        for number in (1, 2):
            memory.save(comm, placement, number, state(comm.rank, number))
        if comm.rank < 2:
            failing = Failing(comm, successes)
            with pytest.raises(Failed):
                memory.save(failing, placement, 3, state(comm.rank, 3))
            assert len(comm.cache.abandoned) == 1
        else:
            memory.save(comm, placement, 3, state(comm.rank, 3))
        before = memory.numbers
        number, states = memory.restore(comm, [comm.rank])
        assert same(states[comm.rank], state(comm.rank, 2))
        return number, before, memory.numbers

    results = sim.run(program, 4)
    assert [number for number, *_ in results] == [2] * 4
    assert results[0][1] == {0: [2], 1: [2] if successes else [1, 2]}
    assert results[3][1] == {2: [2, 3], 3: [2, 3]}
    assert results[3][2] == {2: [2], 3: [2]}  # save 3 was abandoned


def test_a_new_rank_stores_what_it_restores_and_another_failure_is_recoverable():
    """Rank 1 fails and is replaced by 4; after the next save rank 0 fails."""

    def program(comm):
        memory, placement = PeerMemory(), groups(4, 2)
        training = comm.Split(comm.rank >= 4)
        if comm.rank < 4:
            memory.save(training, placement, 1, state(comm.rank, 1))
        roles = {4: 1}
        living = comm.Split(comm.rank in (1, 5), key=roles.get(comm.rank, comm.rank))
        if comm.rank not in (1, 5):
            memory.restore(living, [living.rank])
            memory.save(living, placement, 2, state(living.rank, 2))
        roles[5] = 0
        last = comm.Split(comm.rank in (0, 1), key=roles.get(comm.rank, comm.rank))
        if comm.rank not in (0, 1):
            number, states = memory.restore(last, [last.rank])
            assert same(states[last.rank], state(last.rank, 2))
            return number, memory.numbers

    results = sim.run(program, 6)
    assert [result[0] for result in results[2:]] == [2] * 4
    assert results[4][1] == {1: [1, 2], 0: [2]}  # as rank 1
    assert results[5][1] == {0: [2]}  # as rank 0


def test_fewer_ranks_restore_the_states_of_all():
    """Rank 2 of 4 fails; its state is restored on its neighbour or on another rank."""
    for taker in (3, 0):

        def program(comm, taker=taker):
            memory = PeerMemory()
            memory.save(comm, groups(4, 2), 7, state(comm.rank, 7))
            living = comm.Split(comm.rank == 2, key=comm.rank)
            if comm.rank == 2:
                return None
            roles = [comm.rank] + ([2] if comm.rank == taker else [])
            number, states = memory.restore(living, roles)
            assert number == 7
            assert all(same(states[role], state(role, 7)) for role in roles)
            return sorted(states)

        restored = [roles for roles in sim.run(program, 4) if roles]
        assert sorted(sum(restored, [])) == [0, 1, 2, 3]


def test_a_save_sends_m_minus_1_states_and_a_restore_one_per_new_rank():
    words = 1000

    def program(comm):
        memory, sent, metered = PeerMemory(), [], Metered(comm)
        arrays = [np.full(words, comm.rank)]
        memory.save(metered, groups(6, 3), 1, arrays)
        sent.append(metered.bytes_sent)
        memory = PeerMemory() if comm.rank == 4 else memory
        begun = metered.bytes_sent
        memory.restore(metered, [comm.rank])
        return sent[0], metered.bytes_sent - begun

    nbytes = pack([np.full(words, 0)]).nbytes
    saved, restored = zip(*sim.run(program, 6), strict=True)
    assert set(saved) == {2 * (nbytes + 8)}
    assert sum(sent > nbytes for sent in restored) == 1


def test_the_probability_of_recovery_is_the_share_of_restored_sets():
    placement = groups(5, 2)
    sets = list(combinations(range(5), 2))
    restored = [recover(placement, failed, saves=1) == 1 for failed in sets]
    assert sum(restored) / len(sets) == enumerated(placement, 2)


def test_two_ranks_with_one_role_are_refused():
    copies = np.array([[[0, 1]], [[1, 1]]])
    with pytest.raises(BadInput, match="one rank for each role, got ranks 0 and 1"):
        newest(copies, np.array([[0], [0]]))
