"""The ring buffer of prioritised records, against a list of records."""

import numpy as np
import pytest

from dml.data.replay.buffer import LARGEST, ONE, ReplayBuffer, fixed_point

DTYPE = np.dtype([("number", np.int64), ("value", np.float32, (3,))])


def numbered(first, count):
    """Return records whose fields are their numbers."""
    records = np.zeros(count, DTYPE)
    records["number"] = np.arange(first, first + count)
    records["value"] = records["number"][:, None]
    return records


def uniforms(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_buffer_equals_a_list_of_the_newest_records(alpha):
    random, buffer = np.random.default_rng(0), ReplayBuffer(13, DTYPE, alpha)
    records, priorities = [], {}  # number of the record, priority by number
    for _ in range(200):
        if random.random() < 0.5:
            count = int(random.integers(1, 14))
            new = random.random(count)
            buffer.insert(numbered(len(records), count), new)
            priorities |= zip(
                range(len(records), len(records) + count), new, strict=True
            )
            records += range(count)
        elif records:
            keys = random.integers(0, len(records), 5)  # many are overwritten
            new = random.random(5) * (random.random(5) < 0.8)
            buffer.set_priorities(keys, new)
            priorities |= zip(keys.tolist(), new, strict=True)
        kept = range(len(records))[-13:]
        weights = {key: fixed_point(priorities[key], alpha) for key in kept}
        assert len(buffer) == len(kept)
        assert buffer.tree.total == sum(weights.values())
        if buffer.tree.total:
            sampled = buffer.sample(uniforms(8, len(records)))
            assert np.array_equal(sampled.records["number"], sampled.keys)
            assert all(weights[key] for key in sampled.keys)


def test_a_record_is_sampled_in_proportion_to_the_power_of_its_priority():
    buffer = ReplayBuffer(4, DTYPE, alpha=0.5)
    buffer.insert(numbered(0, 4), np.array([1.0, 4.0, 9.0, 0.0]))
    total = buffer.tree.total
    assert total == 6 * ONE
    found = buffer.tree.find(np.arange(0, total, ONE // 4))
    assert np.bincount(found, minlength=4).tolist() == [4, 8, 12, 0]


def test_importance_weights_are_the_inverse_probabilities_over_the_largest():
    buffer = ReplayBuffer(8, DTYPE, alpha=1.0, beta=0.4)
    buffer.insert(numbered(0, 8), np.array([1, 2, 4, 8, 1, 2, 4, 8.0]))
    sampled = buffer.sample(uniforms(30))
    probabilities = np.array([1, 2, 4, 8])[sampled.keys % 4] / 30
    weights = (8 * probabilities) ** -0.4
    np.testing.assert_allclose(sampled.weights, weights / weights.max(), rtol=1e-6)
    assert sampled.weights.max() == 1 and sampled.weights.dtype == np.float32


def test_with_beta_1_the_weighted_mean_is_that_of_all_records():
    """Over all draws, the sum of value times weight is that of uniform sampling."""
    buffer = ReplayBuffer(3, DTYPE, alpha=1.0, beta=1.0)
    buffer.insert(numbered(0, 3), np.array([1, 2, 3.0]))
    found = buffer.tree.find(np.arange(0, buffer.tree.total, ONE // 8))
    weights = buffer.importance(buffer.tree.weights[found])
    by_record = np.bincount(found, weights, minlength=3)
    np.testing.assert_allclose(by_record, by_record[0], rtol=1e-6)


def test_a_new_priority_of_an_overwritten_record_changes_nothing():
    buffer = ReplayBuffer(4, DTYPE)
    buffer.insert(numbered(0, 6), np.full(6, 0.5))
    before = buffer.tree.nodes.copy()
    buffer.set_priorities(np.array([0, 1]), np.array([3.0, 0.0]))
    assert np.array_equal(buffer.tree.nodes, before)
    buffer.set_priorities(np.array([1, 2]), np.array([0.0, 0.0]))
    sampled = buffer.sample(uniforms(64))
    assert set(sampled.keys.tolist()) == {3, 4, 5}


def test_a_message_larger_than_the_buffer_leaves_its_last_records():
    buffer = ReplayBuffer(4, DTYPE)
    buffer.insert(numbered(0, 11), np.arange(11.0))
    assert sorted(buffer.records["number"].tolist()) == [7, 8, 9, 10]
    weights = fixed_point(np.arange(7, 11), 0.6)
    assert buffer.tree.total == weights.sum()


def test_weights_are_0_for_priority_0_and_in_range_for_all_others():
    weights = fixed_point(np.array([0, 1e-30, 1, 1e30, np.inf]), 1.0)
    assert weights.tolist() == [0, 1, ONE, LARGEST, LARGEST]
    assert fixed_point(np.array([0.0, 1e-30, 5]), 0.0).tolist() == [0, ONE, ONE]
    for wrong in (-1.0, np.nan):
        with pytest.raises(ValueError, match="expected priorities of at least 0"):
            fixed_point(np.array([wrong]), 0.6)
