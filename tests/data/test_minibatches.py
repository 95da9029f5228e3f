from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.data.minibatches import draws, minibatches, take
from dml.data.shards import shard
from dml.types import BadInput, Batch, Examples


@given(st.integers(1, 100), st.data())
def test_every_epoch_shows_every_example_once(count, data):
    batch = data.draw(st.integers(1, count))
    epoch = list(minibatches(count, batch, seed=3, epochs=1))
    assert sorted(np.concatenate(epoch)) == list(range(count))
    assert [len(index) for index in epoch[:-1]] == [batch] * (len(epoch) - 1)
    assert len(epoch[-1]) == (count - 1) % batch + 1


@given(st.integers(1, 12), st.integers(0, 5))
def test_any_number_of_ranks_sees_the_order_of_one(size, seed):
    alone = minibatches(23, 7, seed, epochs=2)
    ranks = [minibatches(23, 7, seed, epochs=2) for _ in range(size)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        mine = [shard(index, rank, size) for rank, index in enumerate(parts)]
        assert np.array_equal(np.concatenate(mine), whole)


def test_epochs_and_seeds_have_orders_of_their_own():
    first, second = minibatches(50, 50, seed=0, epochs=2)
    (other,) = minibatches(50, 50, seed=1, epochs=1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_without_epochs_there_is_no_end():
    endless, twice = minibatches(5, 2, seed=0), list(minibatches(5, 2, 0, epochs=2))
    assert np.array_equal(
        np.concatenate(list(islice(endless, 6))), np.concatenate(twice)
    )
    assert len(next(endless)) == 2


def test_take_keeps_inputs_with_their_targets():
    data = Batch(np.arange(20).reshape(10, 2), np.arange(10))
    inputs, targets = take(data, np.array([7, 2, 7]))
    assert targets.tolist() == [7, 2, 7]
    assert inputs[:, 0].tolist() == [14, 4, 14]


@pytest.mark.parametrize("batch", [-1, 0, 6])
def test_a_batch_of_no_or_too_many_examples_is_bad_input_at_once(batch):
    with pytest.raises(BadInput, match=f"batch of 1 to 5 examples, got {batch=}"):
        minibatches(5, batch, seed=0)


@given(st.integers(1, 20), st.integers(1, 50), st.integers(0, 90), st.data())
def test_draws_of_one_length_straddle_the_epochs_of_minibatches(
    count, batch, examples, data
):
    found = list(draws(count, batch, 3, examples))
    assert [len(index) for index in found[:-1]] == [batch] * (len(found) - 1)
    stream = np.concatenate([np.empty(0, np.int64), *found])
    assert len(stream) == examples and stream.dtype == np.int64
    epochs = islice(minibatches(count, count, seed=3), examples // count + 1)
    order = np.concatenate(list(epochs))[:examples]
    assert np.array_equal(stream % count, order)
    assert np.array_equal(stream // count, np.arange(examples) // count)
    start = data.draw(st.integers(0, examples))
    rest = list(draws(count, batch, 3, examples, start))
    assert np.array_equal(np.concatenate([stream[:start], *rest]), stream)


@pytest.mark.parametrize(
    "wrong", [(0, 1, 0, 5), (5, 0, 0, 5), (5, 2, 0, 5, 6), (5, 2, 0, 5, -1)]
)
def test_draws_of_nothing_are_bad_input_at_once(wrong):
    with pytest.raises(BadInput, match="expected examples, a batch of one or more"):
        draws(*wrong)


def test_take_reaches_every_array_of_a_tree_at_any_epoch():
    data = Batch({"a": np.arange(5), "b": np.arange(10).reshape(5, 2)}, (np.arange(5),))
    inputs, (targets,) = take(data, np.array([9, 0, 14]))
    assert targets.tolist() == inputs["a"].tolist() == [4, 0, 4]
    assert inputs["b"].tolist() == [[8, 9], [0, 1], [8, 9]]


def test_take_of_examples_passes_the_draws_themselves():
    made = Examples(3, lambda index: Batch(index, index // 3))
    assert take(made, np.array([7, 1])).targets.tolist() == [2, 0]
