"""Every edge once, and what conflicts together: plans against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from dml.types import BadInput, Edges
from dml.wire.memory.conflicts import LINE, component_sizes, hubs, plan
from dml.wire.memory.structure import safe_delay, structure

WIDTH = 40  # rows: more than two cache lines
LISTS = st.lists(st.sets(st.integers(0, WIDTH - 1), max_size=4), max_size=25)
MARKS = st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH)


def packed(lists):
    starts = np.cumsum([0, *map(len, lists)])
    rows = [row for rows in lists for row in sorted(rows)]
    return Edges(starts.astype(np.int64), np.array(rows, np.uint32))


def components(lists, deferred):
    """Return a label for each edge, by scipy on the matrix of overlaps."""
    touched = np.zeros((len(lists), WIDTH), int)
    for e, rows in enumerate(lists):
        touched[e, sorted(rows)] = 1
    touched[:, deferred] = 0
    return connected_components(csr_matrix(touched @ touched.T), directed=False)[1]


def cut(lists, batch):
    return [lists[first : first + batch] for first in range(0, len(lists), batch)]


def takers(found, block, size, batch, workers):
    """Return who takes each edge of a block, each exactly once and rising."""
    starts = found.starts[block * workers : (block + 1) * workers + 1]
    lists = [found.edges[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]
    assert all((np.diff(edges) > 0).all() for edges in lists)
    first = block * batch
    assert sorted(np.concatenate(lists)) == list(range(first, first + size))
    taker = np.empty(size, int)
    for worker, edges in enumerate(lists):
        taker[edges - first] = worker
    return taker


def least_loads(sizes, firsts, workers):
    """Return who takes each size: largest first to who has least, ties by firsts."""
    loads, found = np.zeros(workers, int), np.empty(len(sizes), int)
    for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], firsts[k])):
        found[k] = loads.argmin()
        loads[found[k]] += sizes[k]
    average = loads.sum() / workers
    assert loads.max(initial=0) <= average + max(sizes, default=0)
    return found


@settings(max_examples=80)
@given(LISTS, st.integers(1, 12), st.integers(1, 5), MARKS)
def test_workers_share_no_row_and_components_go_largest_first(
    lists, batch, workers, marks
):
    deferred = np.array(marks)
    edges, blocks = packed(lists), cut(lists, batch)
    found = plan(edges, batch, workers, deferred)
    sizes = component_sizes(edges, batch, deferred)
    assert len(found.edges) == len(lists)
    assert len(found.starts) == len(blocks) * workers + 1
    assert len(sizes) == len(blocks)
    assert found.deferred.tolist() == deferred.tolist()
    for b, block in enumerate(blocks):
        taker = takers(found, b, len(block), batch, workers)
        for row in np.flatnonzero(~deferred):
            assert len({taker[e] for e, rows in enumerate(block) if row in rows}) <= 1
        labels = components(block, deferred)
        members = [np.flatnonzero(labels == label) for label in range(max(labels) + 1)]
        assert sizes[b].tolist() == sorted(map(len, members), reverse=True)
        weights = [sum(len(block[e]) for e in edges) for edges in members]
        due = least_loads(weights, [edges[0] for edges in members], workers)
        assert taker.tolist() == due[labels].tolist()

    # each deferred row has one worker, who sees all its edges
    if not deferred.any():
        assert len(found.slots) == 0
        return
    degrees = np.bincount(edges.rows, minlength=WIDTH) * deferred
    loads = [degrees[at : at + LINE].sum() for at in range(0, WIDTH, LINE)]
    owner = np.repeat(least_loads(loads, range(len(loads)), workers), LINE)
    for e, rows in enumerate(map(sorted, lists)):
        for worker in range(workers):
            a, z = found.slot_starts[e * workers + worker :][:2]
            due = [s for s, r in enumerate(rows) if deferred[r] and owner[r] == worker]
            assert found.slots[a:z].tolist() == due
    assert found.slot_starts[-1] == len(found.slots)


@given(LISTS, st.sampled_from([0, 0.1, 0.25, 0.5, 1, 2]))
def test_hubs_are_in_more_than_a_share_of_the_edges(lists, share):
    found = hubs(packed(lists), WIDTH, share)
    for row in range(WIDTH):
        many = sum(row in rows for rows in lists) > share * len(lists)
        assert found[row] == (many or share == 0)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda edges: plan(edges, 0, 1, np.zeros(6, bool)), "batch=0"),
        (lambda edges: plan(edges, 1, 0, np.zeros(6, bool)), "workers=0"),
        (
            lambda edges: component_sizes(edges, 1, np.zeros(5, bool)),
            "6 rows or more, got 5",
        ),
        (lambda edges: hubs(edges, 6, -1), "share=-1"),
    ],
)
def test_what_no_plan_can_be_made_of_is_refused(call, message):
    with pytest.raises(BadInput, match=message):
        call(packed([{0, 5}, {2}]))


def made(count, width, density, seed):
    """Return edges and their incidence: rows at random, row 0 in most of them."""
    rng = np.random.default_rng(seed)
    touched = rng.random((count, width)) < density
    touched[:, 0] |= rng.random(count) < 0.8 * (seed % 3 > 0)
    touched[rng.integers(count), -1] = True
    starts = np.append(0, np.cumsum(touched.sum(1)))
    return Edges(starts, np.nonzero(touched)[1].astype(np.uint32)), touched


def met(touched):
    """Return which edges share a row."""
    return touched.astype(int) @ touched.T.astype(int) > 0


# Few edges: each row is a bitset. 300 edges: rows in 5 of them or more are.
@settings(max_examples=60)
@given(
    st.sampled_from([1, 2, 60, 64, 65, 300]),
    st.integers(1, 200),
    st.sampled_from([0, 0.005, 0.02, 0.3]),
    st.integers(0, 99),
)
def test_all_numbers_are_those_of_brute_force(count, width, density, seed):
    edges, touched = made(count, width, density, seed)
    pairs = met(touched)
    found = structure(edges, width + 3)
    assert found.edges == count and not found.sampled
    assert found.rows == touched.any(0).sum()
    assert found.omega == touched.sum(1).max()
    assert found.delta == pytest.approx(touched.sum(0).max() / count)
    assert found.rho == pytest.approx(pairs.sum(1).max() / count)
    np.fill_diagonal(pairs, False)
    average = pairs.sum(1).mean()
    assert found.conflicts == pytest.approx(average)
    delay = count / average if average else math.inf
    assert found.average_delay == pytest.approx(delay)
    assert found.worst_case_delay == safe_delay(found.omega, found.delta, found.rho)


@pytest.mark.parametrize("seed", (1, 2, 3))
def test_a_sample_is_near_and_its_rho_is_no_more_than_the_true_one(seed):
    edges, touched = made(300, 100, 0.02, seed)
    pairs = met(touched)
    found = structure(edges, 100, seed, work=500)
    assert found.sampled
    assert found.rho <= pairs.sum(1).max() / 300
    # those that may meet most are all looked at, beside the sample
    assert found.rho == pytest.approx(pairs.sum(1).max() / 300, rel=0.05)
    assert found.conflicts == pytest.approx(pairs.sum(1).mean() - 1, rel=0.2)
    assert found == structure(edges, 100, seed, work=500)
    assert found.conflicts != structure(edges, 100, seed + 1, work=500).conflicts


@given(st.integers(1, 10**4), st.floats(1e-7, 1), st.floats(1e-7, 1))
def test_at_the_safe_delay_the_steps_have_doubled(omega, delta, rho):
    delay = safe_delay(omega, delta, rho)
    assert delay > 0
    more = 6 * rho * delay + 6 * delay**2 * omega * math.sqrt(delta)
    assert more == pytest.approx(1)


def test_edges_that_touch_nothing_or_too_much_are_refused():
    with pytest.raises(BadInput, match="3 without rows"):
        structure(Edges(np.zeros(4, np.int64), np.zeros(0, np.uint32)), 5)
    with pytest.raises(BadInput, match="width=5, got 5"):
        structure(Edges(np.array([0, 1]), np.array([5], np.uint32)), 5)
