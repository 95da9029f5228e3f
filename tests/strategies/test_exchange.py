"""Exchanges of examples between shards, on virtual ranks."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml import sim
from dml.data.shards import bounds, shard
from dml.strategies.exchange import (
    draw_moves,
    epoch_minibatches,
    example_bytes,
    exchange,
    exchanged_minibatches,
    selected_count,
)
from dml.types import BadInput
from dml.wire.comm import Metered

COUNT, SIZES, FRACTIONS = 23, (1, 2, 3, 4, 5), (0, 0.01, 0.1, 1)
EXAMPLE = 3 * 2 * 4 + 2  # bytes


def examples(count):
    """Return inputs and targets that identify the example."""
    numbers = np.arange(count)
    inputs = (numbers[:, None, None] + [[0, 0.25], [0.5, 0.125], [1, 2]]).astype("f4")
    return inputs, numbers.astype(np.int16)


def own_shard(comm, count=COUNT):
    return [shard(array, comm.rank, comm.size).copy() for array in examples(count)]


def epochs(comm, fraction, count=COUNT, number=3, seed=5):
    """Return this rank's examples after each exchange, and its traffic."""
    comm, own, history = Metered(comm), own_shard(comm, count), []
    for epoch in range(number):
        before = comm.messages_sent, comm.bytes_sent
        exchange(comm, own, draw_moves(count, comm.size, fraction, seed, epoch))
        history.append(
            (
                [array.copy() for array in own],
                comm.messages_sent - before[0],
                comm.bytes_sent - before[1],
            )
        )
    return history


@pytest.mark.parametrize("count", (COUNT, 3))
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_all_examples_remain_and_shards_keep_their_lengths(size, fraction, count):
    results = sim.run(lambda comm: epochs(comm, fraction, count), size)
    inputs, targets = examples(count)
    for epoch in range(3):
        shards = [history[epoch][0] for history in results]
        lengths = [stop - start for start, stop in all_bounds(size, count)]
        assert [len(own[1]) for own in shards] == lengths
        after = np.concatenate([own[1] for own in shards])
        assert sorted(after) == targets.tolist()
        # inputs moved with their targets
        assert np.array_equal(np.concatenate([own[0] for own in shards]), inputs[after])


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_an_exchange_permutes_the_selected_examples_as_one_array(size, fraction):
    results = sim.run(lambda comm: epochs(comm, fraction, number=1), size)
    moves = draw_moves(COUNT, size, fraction, 5, 0)
    starts = [start for start, _ in all_bounds(size)]
    places = moves.positions + np.repeat(starts, np.diff(moves.edges))
    expected = np.arange(COUNT)
    expected[places[moves.targets]] = places
    after = np.concatenate([history[0][0][1] for history in results])
    assert after.tolist() == expected.tolist()


def all_bounds(size, count=COUNT):
    return [bounds(count, rank, size) for rank in range(size)]


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_bytes_sent_are_those_of_the_examples_that_change_their_rank(size, fraction):
    results = sim.run(lambda comm: epochs(comm, fraction), size)
    owners = np.repeat(np.arange(size), np.diff([0, *(e for _, e in all_bounds(size))]))
    for epoch in range(3):
        moves = draw_moves(COUNT, size, fraction, 5, epoch)
        after = np.empty_like(owners)
        for rank, history in enumerate(results):
            after[history[epoch][0][1]] = rank
        for rank, history in enumerate(results):
            left = int(((owners == rank) & (after != rank)).sum())
            _, messages, sent = history[epoch]
            assert sent == EXAMPLE * left == EXAMPLE * moves.examples_sent(rank)
            assert messages == len(set(after[(owners == rank) & (after != rank)]))
        owners = after


def test_without_an_exchange_nothing_is_sent_or_changed():
    for rank, history in enumerate(sim.run(lambda comm: epochs(comm, 0), 4)):
        for (inputs, targets), messages, sent in history:
            assert (messages, sent) == (0, 0)
            assert targets.tolist() == list(range(*bounds(COUNT, rank, 4)))
            assert np.array_equal(inputs, examples(COUNT)[0][targets])


@pytest.mark.parametrize("fraction", (0.01, 0.1, 1))
def test_the_mean_of_sent_examples_is_that_of_the_formula(fraction):
    count, size, number = 4000, 4, 50
    sent = [
        draw_moves(count, size, fraction, 0, epoch).examples_sent(rank)
        for epoch in range(number)
        for rank in range(size)
    ]
    selected, share = fraction * count / size, 1 - 1 / size
    deviation = np.sqrt(selected * share / size / len(sent))
    assert abs(np.mean(sent) - selected * share) < 4 * deviation


def test_a_global_reshuffle_moves_each_example_to_each_rank_equally_often():
    count, size, number = 40, 4, 2000
    landed = np.zeros((count, size))
    for seed in range(number):
        moves = draw_moves(count, size, 1, seed, 0)
        landed[
            np.arange(count), np.searchsorted(moves.edges, moves.targets, "right") - 1
        ] += 1
    expected = number / size
    chi2 = ((landed - expected) ** 2 / expected).sum(axis=1)
    assert chi2.max() < 25  # 3 degrees of freedom: p of 40 x 1.5e-5


@given(st.integers(0, 400), st.floats(0, 1), st.integers(1, 30))
def test_selected_examples_add_up_over_epochs(length, fraction, number):
    counts = [selected_count(length, fraction, epoch) for epoch in range(number)]
    assert min(counts) >= 0 and max(counts) <= length
    assert max(counts) - min(counts) <= 2
    assert abs(sum(counts) - fraction * length * number) <= 0.5 + 1e-9


def test_moves_depend_on_seed_and_epoch_and_are_a_permutation():
    one, same = (draw_moves.__wrapped__(COUNT, 4, 1, 7, 2) for _ in range(2))
    for field, again in zip(one, same, strict=True):
        assert np.array_equal(field, again)
    for other in ((8, 2), (7, 3)):
        assert not np.array_equal(one.targets, draw_moves(COUNT, 4, 1, *other).targets)
    assert np.array_equal(one.sources[one.targets], np.arange(COUNT))
    part = draw_moves(COUNT, 4, 0.3, 7, 2)
    for rank, (start, stop) in enumerate(all_bounds(4)):
        chosen = part.positions[part.of_rank(rank)]
        assert len(set(chosen)) == len(chosen) and max(chosen) < stop - start


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 20))
def test_every_epoch_has_every_example_once_on_the_rank_of_its_shard(
    count, size, batch
):
    made = epoch_minibatches(count, size, batch, 3, 1)
    assert sorted(np.concatenate(made)) == list(range(count))
    for index in made:  # as a strategy splits it
        for rank, (start, stop) in enumerate(all_bounds(size, count)):
            own = shard(index, rank, size)
            assert len(own) <= batch
            assert all(start <= position < stop for position in own)
    assert {len(index) for index in made[:-1]} <= {size * batch}


def test_orders_differ_between_epochs_seeds_and_shards():
    def order(seed, epoch):
        return np.concatenate(epoch_minibatches(40, 2, 20, seed, epoch))

    assert not np.array_equal(order(0, 0), order(0, 1))
    assert not np.array_equal(order(0, 0), order(1, 0))
    first, second = order(0, 0)[:20], order(0, 0)[20:]
    assert not np.array_equal(first, second - 20)


def test_minibatches_exchange_before_each_epoch_and_are_equal_on_all_ranks():
    def program(comm):
        comm, own = Metered(comm), own_shard(comm)
        batches = exchanged_minibatches(
            comm, own, count=COUNT, batch=4, fraction=1, seed=5, epochs=3
        )
        indices, sent = [], []
        for index in batches:
            indices.append(index.tolist())
            sent.append(comm.bytes_sent)
        return indices, sent, [array.tolist() for array in own]

    results = sim.run(program, 3)
    assert results == sim.run(program, 3)
    assert all(indices == results[0][0] for indices, _, _ in results)
    whole = sim.run(lambda comm: epochs(comm, 1), 3)
    for (indices, sent, own), history in zip(results, whole, strict=True):
        assert own == [array.tolist() for array in history[-1][0]]
        changes = [
            number for number, (a, b) in enumerate(pairwise([0, *sent])) if b > a
        ]
        assert changes == [0, len(indices) // 3, 2 * len(indices) // 3]


def test_an_example_has_the_bytes_of_all_arrays():
    assert example_bytes(examples(COUNT)) == EXAMPLE
    assert example_bytes(examples(0)) == EXAMPLE


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda comm: draw_moves(9, 2, 1.5, 0, 0), r"fraction of examples in \[0, 1\]"),
        (lambda comm: draw_moves(9, 2, float("nan"), 0, 0), "got nan"),
        (lambda comm: epoch_minibatches(9, 2, 0, 0, 0), "a batch of 1 or more, got 0"),
        (
            lambda comm: exchange(comm, own_shard(comm), draw_moves(9, 3, 1, 0, 0)),
            "expected moves between 2 ranks, got 3",
        ),
        (
            lambda comm: exchange(comm, own_shard(comm, 9), draw_moves(8, 2, 1, 0, 0)),
            r"expected arrays of 4 examples.* got lengths \[5, 5\]",
        ),
    ],
)
def test_wrong_arguments_are_bad_input(call, message):
    with pytest.raises(BadInput, match=message):
        sim.run(call, 2)
