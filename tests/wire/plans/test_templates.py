"""Pipeline templates: every number of nodes is covered, and few pipelines change."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dml.types import BadInput
from dml.wire.plans.pipeline.templates import (
    Templates,
    batch_shares,
    changes,
    instantiate,
    make_templates,
    moves,
    reinstantiate,
    sizes_of,
    speed,
)

CASES = [(least, f, n) for least in range(1, 7) for f in range(3) for n in (18, 30)]


def is_covered(nodes, sizes, fewest):
    """Return whether `fewest` sizes or more have the sum `nodes`, by enumeration."""
    sums = {0}
    for count in range(1, nodes + 1):
        sums = {one + size for one, size in product(sums, sizes) if one + size <= nodes}
        if count >= fewest and nodes in sums:
            return True
        if not sums:
            return False
    return False


@pytest.mark.parametrize("least, failures, nodes", CASES)
def test_templates_cover_all_numbers_of_nodes_and_smaller_ones_do_not(
    least, failures, nodes
):
    made = make_templates(least, failures, nodes)
    numbers = range((failures + 1) * least, nodes + 1)

    def covers(most):
        sizes = range(least, most + 1)
        return all(is_covered(number, sizes, failures + 1) for number in numbers)

    assert covers(made.most)
    assert made.most == least or not covers(made.most - 1)
    bound = least + -(-(least - 1) // (failures + 1))
    assert made.most <= bound and (made.most == bound or nodes < numbers[0] + least - 1)
    for number in numbers:
        sizes = sizes_of(made, number)
        assert sum(sizes) == number and set(sizes) <= set(made.sizes)
        assert len(sizes) >= failures + 1 and max(sizes) - min(sizes) <= 1


def fewest_changes(templates, pipelines, dead):
    """Return the fewest new pipelines after a failure, by enumeration of sizes."""
    left = [len(set(one) - set(dead)) for one in pipelines]
    intact = [n for n, one in zip(left, pipelines, strict=True) if n == len(one)]
    broken = sum(left) - sum(intact)
    best = []
    for kept in range(len(intact) + 1):
        for chosen in {*combinations_with_replacement(sorted(set(intact)), kept)}:
            if any(chosen.count(size) > intact.count(size) for size in chosen):
                continue
            rest = broken + sum(intact) - sum(chosen)
            for count in range(rest + 1):
                enough = kept + count > templates.failures
                fits = count * templates.least <= rest <= count * templates.most
                best += [len(intact) - kept] if enough and fits else []
    return min(best)


@pytest.mark.parametrize("least, failures", [(1, 0), (2, 1), (3, 1), (4, 1), (4, 2)])
def test_after_every_failure_all_nodes_work_and_the_fewest_pipelines_change(
    least, failures
):
    nodes = (failures + 4) * least
    templates = make_templates(least, failures, nodes)
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(nodes).tolist()
        pipelines = instantiate(templates, range(nodes))
        alive = set(range(nodes))
        while len(alive) > templates.fewest_nodes:
            dead = order.pop()
            alive.remove(dead)
            before, pipelines = pipelines, reinstantiate(templates, pipelines, [dead])
            assert sorted(node for one in pipelines for node in one) == sorted(alive)
            assert {len(one) for one in pipelines} <= set(templates.sizes)
            assert len(pipelines) > failures
            lost = len(before) - len(set(before) & set(pipelines)) - 1
            assert lost == fewest_changes(templates, before, [dead])
            assert pipelines == reinstantiate(templates, before, [dead])
        with pytest.raises(BadInput, match="start from a checkpoint with"):
            reinstantiate(templates, pipelines, [order.pop()])


def test_a_pipeline_shrinks_borrows_or_is_dissolved():
    templates = Templates(3, 5, 1)
    shrinks = reinstantiate(templates, [(0, 1, 2, 3), (4, 5, 6)], [1])
    assert shrinks == [(4, 5, 6), (0, 2, 3)]
    borrows = reinstantiate(templates, [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)], [5])
    assert borrows == [(7, 8, 9), (0, 1, 2), (4, 6, 3)]
    dissolved = reinstantiate(templates, [(0, 1, 2), (3, 4, 5), (6, 7, 8)], [4])
    assert dissolved == [(6, 7, 8), (0, 1, 2, 3, 5)]
    before = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert (changes(before, dissolved), moves(before, dissolved)) == (1, 2)
    before = [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)]
    assert (changes(before, borrows), moves(before, borrows)) == (2, 1)
    two = reinstantiate(templates, [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)], [5, 6])
    assert two == [(0, 1, 2, 3), (7, 8, 9, 4)]
    assert reinstantiate(templates, [(0, 1, 2), (3, 4, 5)], [9]) == [
        (0, 1, 2),
        (3, 4, 5),
    ]


def test_shares_are_whole_and_in_proportion_to_speed():
    speeds = [speed(4, 8), speed(3, 8), speed(3, 8)]
    assert speeds[0] == pytest.approx(4 * 8 / 11)
    shares = batch_shares(speeds, 100)
    assert sum(shares) == 100 and shares == [38, 31, 31]
    for one, share in zip(speeds, shares, strict=True):
        assert abs(share - 100 * one / sum(speeds)) < 1
    assert batch_shares([1.0, 1.0], 3) == [2, 1]
    assert speed(1, 5) == 1


def test_impossible_templates_are_refused():
    with pytest.raises(BadInput, match="expected 6 nodes or more for 2 pipelines of 3"):
        make_templates(3, 1, 5)
    with pytest.raises(BadInput, match="1 node or more and 0 failures or more, got 0"):
        make_templates(0, 1, 5)
