from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.data.minibatches import minibatches, take
from dml.data.shards import shard
from dml.types import BadInput, Batch


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
