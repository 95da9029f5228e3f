from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.data.minibatches import draws, minibatches, take
from dml.data.shards import bounds, microbatches, shard, shards
from dml.types import BadInput, Batch, Examples


@given(st.integers(1, 100), st.data())
def test_every_epoch_shows_every_example_once(count, data):
    batch = data.draw(st.integers(1, count))
    epoch = list(minibatches(count, batch, seed=3, epochs=1))
    assert sorted(np.concatenate(epoch)) == list(range(count))
    assert [len(index) for index in epoch[:-1]] == [batch] * (len(epoch) - 1)
    assert len(epoch[-1]) == (count - 1) % batch + 1


@given(st.integers(0, 200), st.integers(1, 40))
def test_shards_in_rank_order_are_the_whole_and_the_longer_come_first(count, size):
    parts = [shard(range(count), rank, size) for rank in range(size)]
    assert [example for part in parts for example in part] == list(range(count))
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


def test_epochs_and_seeds_have_orders_of_their_own_without_end():
    first, second = minibatches(50, 50, seed=0, epochs=2)
    (other,) = minibatches(50, 50, seed=1, epochs=1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    endless, twice = minibatches(5, 2, seed=0), list(minibatches(5, 2, 0, epochs=2))
    for one, other in zip(islice(endless, 6), twice, strict=True):
        assert np.array_equal(one, other)
    assert len(next(endless)) == 2


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


def test_take_reaches_every_array_of_a_tree_at_any_epoch():
    data = Batch({"a": np.arange(5), "b": np.arange(10).reshape(5, 2)}, (np.arange(5),))
    inputs, (targets,) = take(data, np.array([9, 0, 14]))
    assert targets.tolist() == inputs["a"].tolist() == [4, 0, 4]
    assert inputs["b"].tolist() == [[8, 9], [0, 1], [8, 9]]
    made = Examples(3, lambda index: Batch(index, index // 3))  # gets the draws
    assert take(made, np.array([7, 1])).targets.tolist() == [2, 0]


DRAWS = "expected count and batch of 1 or more"
RANK = "expected 0 <= rank < size"


@pytest.mark.parametrize(
    "call, wrong, message",
    [
        *((minibatches, (5, n, 0), f"of 1 to 5 .* got batch={n}") for n in (-1, 0, 6)),
        *((draws, wrong, DRAWS) for wrong in [(0, 1, 0, 5), (5, 0, 0, 5)]),
        *((draws, wrong, DRAWS) for wrong in [(5, 2, 0, 5, 6), (5, 2, 0, 5, -1)]),
        *((bounds, wrong, RANK) for wrong in [(10, -1, 2), (10, 2, 2), (10, 0, 0)]),
        (bounds, (-1, 0, 2), RANK),
        *((shards, (range(10), size), "1 shard or more") for size in (0, -1)),
        *((microbatches, (range(10), 0, 2, n), "1 shard or more") for n in (0, -1)),
    ],
)
def test_nothing_to_draw_or_share_is_bad_input_at_once(call, wrong, message):
    with pytest.raises(BadInput, match=message):
        call(*wrong)
