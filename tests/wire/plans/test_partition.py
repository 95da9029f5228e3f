from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.types import BadInput
from dml.wire.plans.partition import imbalance, partition, split_keys
from dml.wire.plans.pipeline.stages import balanced_parts, equal_parts
from dml.wire.plans.pipeline.stages import imbalance as stage_imbalance
from dml.wire.reducers.rows import indices, sum_rows


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 9), st.booleans(), st.data())
def test_every_row_is_on_one_server_and_keys_come_apart_and_together(
    rows, servers, hot, data
):
    servers = min(servers, rows)
    frequency = (
        np.random.default_rng(rows).zipf(1.5, rows).astype(float) if hot else None
    )
    found = partition(rows, servers, frequency)
    held = np.concatenate([indices(found.rows_of(s)) for s in range(servers)])
    assert sorted(held) == list(range(rows))
    assert np.ptp([found.count(s) for s in range(servers)]) <= 1
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, rows))
        keys = slice(start, data.draw(st.integers(start, rows)))
    else:
        chosen = data.draw(st.permutations(range(rows)))
        keys = np.array(chosen[: data.draw(st.integers(0, rows))], np.int32)
    wanted = indices(keys)
    got = np.full(len(wanted), -1)
    of = list(split_keys(found, keys))
    assert [part.server for part in of] == list(range(servers))
    for part in of:
        got[part.selection] = indices(found.rows_of(part.server))[part.local]
    assert got.tolist() == wanted.tolist()


def test_hot_rows_are_spread_so_that_heat_is_even():
    frequency = 1 / np.arange(1, 1001) ** 0.8  # words, the most frequent first
    ranges, dealt = partition(1000, 4), partition(1000, 4, frequency)
    assert imbalance(ranges, frequency) > 2
    assert imbalance(dealt, frequency) < 1.15
    assert imbalance(dealt) == imbalance(ranges) == 1


def test_servers_that_would_have_no_row_are_refused():
    for servers in (0, 6):
        with pytest.raises(BadInput, match="expected 1 to 5 servers"):
            partition(5, servers)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 1000))
def test_a_sum_has_the_bits_of_adding_row_by_row_in_order(count, rows, seed):
    draws = np.random.default_rng(seed)
    pushes = []
    for _ in range(count):
        keys = draws.permutation(rows)[: draws.integers(0, rows + 1)].astype(np.int32)
        grads = draws.standard_normal((len(keys), 2)) * 10.0 ** draws.integers(-4, 4)
        pushes.append((keys, grads.astype(np.float32)))
    total: dict[int, np.ndarray] = {}
    for keys, grads in pushes:
        for key, grad in zip(keys.tolist(), grads, strict=True):
            total[key] = total[key] + grad if key in total else np.float32(0) + grad
    keys, sums = sum_rows(pushes)
    assert sorted(keys.tolist()) == sorted(total)
    for key, row in zip(keys.tolist(), sums, strict=True):
        assert row.tobytes() == total[key].tobytes()


def test_ranges_are_added_up_whole():
    ones = np.ones((4, 1), np.float32)
    keys, total = sum_rows([(slice(2, 6), ones), (slice(2, 6), 2 * ones)])
    assert keys == slice(2, 6)
    assert total.tolist() == [[3], [3], [3], [3]]
    assert ones.tolist() == [[1]] * 4  # what came in is not changed
    keys, total = sum_rows([(slice(0, 2), ones[:2]), (np.array([1, 3]), ones[:2])])
    assert keys.tolist() == [0, 1, 3]
    assert total[:, 0].tolist() == [1, 2, 1]


few = settings(max_examples=80)
SECONDS = st.lists(st.integers(1, 50), min_size=1, max_size=9)


def every(layers, count):
    for inner in combinations(range(1, layers), count - 1):
        yield [range(a, b) for a, b in pairwise((0, *inner, layers))]


@given(SECONDS, st.integers(1, 9))
@few
def test_no_other_cut_has_a_faster_slowest_part(seconds, count):
    count = min(count, len(seconds))
    cuts = balanced_parts(seconds, count)
    assert cuts in list(every(len(seconds), count))  # all layers, in a row, none empty
    best = min(stage_imbalance(seconds, other) for other in every(len(seconds), count))
    assert stage_imbalance(seconds, cuts) == best
    layers = len(seconds)
    parts, longest = equal_parts(layers, count), -(-layers // count)
    assert parts in list(every(layers, count))
    assert stage_imbalance([1] * layers, parts) == pytest.approx(
        longest * count / layers
    )


@pytest.mark.parametrize("count", [0, 3])
def test_every_part_has_a_layer(count):
    with pytest.raises(BadInput, match=f"got 2 layers and {count} parts"):
        balanced_parts([1.0, 1.0], count)
