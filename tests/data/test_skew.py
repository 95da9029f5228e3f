"""Skewed shards, and wrong labels of Byzantine workers."""

import numpy as np
import pytest

from dml.data.poison import labels_of, poisoned, with_reversed_labels
from dml.data.skew import (
    by_label,
    parse,
    random_order,
    skewed_draws,
    skewed_shards,
)
from dml.types import BadInput, Batch, Problem

LABELS = np.random.default_rng(0).integers(0, 10, 403)
WORKERS = 7


def shares(shards):
    """Return the share of each label in each shard."""
    counts = np.array([np.bincount(LABELS[part], minlength=10) for part in shards])
    return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "skew",
    [
        "similarity:0",
        "similarity:0.33",
        "similarity:1",
        "dirichlet:0.01",
        "dirichlet:9",
    ],
)
def test_every_example_is_in_one_shard_and_no_shard_is_empty(skew):
    shards = skewed_shards(LABELS, WORKERS, skew, seed=3)
    assert sorted(np.concatenate(shards)) == list(range(len(LABELS)))
    lengths = [len(part) for part in shards]
    assert min(lengths) >= 1
    if skew.startswith("similarity"):
        assert max(lengths) - min(lengths) <= 1
    again = skewed_shards(LABELS, WORKERS, skew, seed=3)
    assert all(np.array_equal(*pair) for pair in zip(shards, again, strict=True))
    other = skewed_shards(LABELS, WORKERS, skew, seed=4)
    assert not all(np.array_equal(*pair) for pair in zip(shards, other, strict=True))


def test_gamma_0_cuts_the_sorted_labels_and_gamma_1_a_random_order():
    order = random_order(len(LABELS), 3)
    for gamma, whole in ((1, order), (0, by_label(LABELS, order))):
        own = skewed_shards(LABELS, WORKERS, f"similarity:{gamma}", seed=3)
        expected = np.array_split(whole, WORKERS)
        assert all(np.array_equal(*pair) for pair in zip(own, expected, strict=True))
    assert (np.diff(LABELS[whole]) >= 0).all()
    deviations = [
        np.abs(shares(skewed_shards(LABELS, WORKERS, f"similarity:{g}", 0)) - 0.1).max()
        for g in (1, 0.66, 0.33, 0)
    ]
    assert deviations == sorted(deviations)
    assert deviations[0] < 0.15 and deviations[-1] > 0.5


def test_a_fraction_gamma_of_each_shard_has_the_labels_of_all_examples():
    labels = np.repeat(np.arange(10), 100)
    for gamma in (0.2, 0.6):
        own = skewed_shards(labels, 10, f"similarity:{gamma}", seed=0)
        common = [np.bincount(labels[part], minlength=10).max() for part in own]
        # worker w has label w, but for the examples that are dealt at random
        assert np.mean(common) == pytest.approx(100 * (1 - gamma * 0.9), abs=8)


def test_shards_of_fewer_examples_than_honest_workers_are_refused():
    for skew in ("similarity:0.5", "dirichlet:1"):
        assert all(map(len, skewed_shards(LABELS[:3], 3, skew, 0)))
        assert all(map(len, skewed_shards(LABELS[:3], 4, skew, 0, attackers=1)))
        with pytest.raises(BadInput, match="one of 3 examples for each of 4 workers"):
            skewed_shards(LABELS[:3], 4, skew, 0)


def test_a_small_alpha_gives_each_label_to_few_workers():
    few = shares(skewed_shards(LABELS, WORKERS, "dirichlet:0.01", seed=1))
    even = shares(skewed_shards(LABELS, WORKERS, "dirichlet:100000", seed=1))
    assert (few > 0.02).sum() < 25
    assert np.abs(even - shares([np.arange(len(LABELS))])).max() < 0.08


def test_attackers_have_copies_and_honest_workers_all_examples():
    shards = skewed_shards(LABELS, 5, "similarity:0", seed=0, attackers=2)
    assert sorted(np.concatenate(shards[:3])) == list(range(len(LABELS)))
    assert shards[3] is shards[0] and shards[4] is shards[1]


@pytest.mark.parametrize("batch", [7, 16])
def test_part_w_of_a_minibatch_is_from_shard_w_and_every_epoch_of_it_is_complete(batch):
    shards = skewed_shards(LABELS, 3, "dirichlet:1", seed=2)
    drawn = [[], [], []]
    for minibatch in skewed_draws(shards, batch, seed=5, examples=batch * 100):
        for worker, part in enumerate(np.array_split(minibatch, 3)):
            drawn[worker] += part.tolist()
    for worker, part in enumerate(shards):
        examples = np.array(drawn[worker]) % len(LABELS)
        epochs = np.array(drawn[worker]) // len(LABELS)
        assert set(examples) <= set(part)
        complete = min(len(part), len(examples))
        assert len(set(examples[:complete])) == complete
        assert np.array_equal(epochs, np.arange(len(epochs)) // len(part))


def test_workers_read_equal_shards_in_different_orders():
    copies = [np.arange(30)] * 2
    first, second = np.array_split(next(skewed_draws(copies, 60, 0, 60)), 2)
    assert sorted(first) == sorted(second) and not np.array_equal(first, second)


def test_draws_resume_at_any_minibatch():
    shards = skewed_shards(LABELS, 3, "similarity:0.5", seed=2)
    everything = list(skewed_draws(shards, 8, seed=1, examples=100))
    assert [len(part) for part in everything] == [8] * 12 + [4]
    rest = list(skewed_draws(shards, 8, seed=1, examples=100, start=40))
    assert all(np.array_equal(*p) for p in zip(everything[5:], rest, strict=True))


@pytest.mark.parametrize(
    "text", ["", "sorted", "similarity:1.1", "dirichlet:0", "similarity"]
)
def test_other_skews_are_refused(text):
    with pytest.raises(BadInput, match="expected"):
        parse(text)


def problem(targets=LABELS):
    inputs = np.arange(len(targets), dtype=np.float32)
    return Problem(
        None,
        len(targets),
        None,
        lambda params: {},
        lambda index: Batch(inputs[index % len(inputs)], targets[index % len(inputs)]),
    )


def test_the_last_workers_have_reversed_labels_of_the_same_examples():
    batches = [np.arange(403, 417), np.arange(3, 14)]
    wrong = with_reversed_labels(problem(), 10)
    for batch, numbers in zip(batches, poisoned(batches, 5, 2), strict=True):
        plain, changed = problem().take(batch), wrong.take(numbers)
        assert np.array_equal(changed.inputs, plain.inputs)
        honest = sum(len(part) for part in np.array_split(batch, 5)[:3])
        assert np.array_equal(changed.targets[:honest], plain.targets[:honest])
        assert np.array_equal(changed.targets[honest:], 9 - plain.targets[honest:])
        assert changed.targets.dtype == plain.targets.dtype


def test_labels_of_all_examples_are_read_and_other_targets_refused():
    assert np.array_equal(
        labels_of(problem(np.resize(LABELS, 2500))), np.resize(LABELS, 2500)
    )
    for targets in (LABELS.astype(np.float32), LABELS.reshape(-1, 1)):
        with pytest.raises(BadInput, match="one label per example"):
            labels_of(problem(targets))
