"""The two trees: who sends when."""

import numpy as np
import pytest

from dml.wire.plans.double_tree import edges, parents_of, pieces, rounds


@pytest.mark.parametrize("size", (2, 3, 4, 5, 8, 9, 16, 33, 100, 1023, 1024))
def test_a_rank_sends_and_receives_at_most_once_a_round(size):
    found = edges(size)
    assert len(found.child) == 2 * (size - 1)
    for ranks in (found.parent, found.child):
        colours = set(zip(ranks.tolist(), (found.start % 2).tolist(), strict=True))
        assert len(colours) == len(ranks)
    table = np.stack(found, 1).tolist()
    arrives = {(child, tree): start for _, child, tree, start in table}
    for parent, _, tree, start in table:  # a root has all pieces
        assert arrives.get((parent, tree), -1) < start
    depth = (size - 1).bit_length() + 1
    assert rounds(size, 10) <= 2 * (10 + depth)


@pytest.mark.parametrize("size", (4, 6, 8, 64, 5, 9, 33))
def test_every_rank_is_inner_in_at_most_one_tree(size):
    inner = [set(parents) - {-1} for parents in parents_of(size)]
    assert inner[0] & inner[1] <= ({0} if size % 2 else set())


def test_pieces_cover_both_halves_once():
    for length in (0, 1, 7, 100):
        both = pieces(length, 9)
        assert len(both[0]) == len(both[1])
        cover = np.concatenate(
            [np.arange(length)[part] for half in both for part in half]
        )
        assert cover.tolist() == list(range(length))
