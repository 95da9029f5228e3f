import numpy as np
import pytest

from dml.strategies.counting.runs import cut, slabs

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("limit", (1, 7, 30, 1000))
def test_slabs_hold_all_words_in_order_and_no_more_than_fits(limit):
    heaviest = RNG.integers(0, 12, 200)
    found = [*slabs(heaviest, limit)]
    assert [word for slab in found for word in range(*slab)] == [*range(200)]
    for start, stop in found:
        assert heaviest[start:stop].sum() <= limit or stop == start + 1
        more = heaviest[start : stop + 1].sum()
        assert more > limit or stop == 200  # and no fewer


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("words", (1, 2, 50))
def test_ranks_share_a_slab_up_to_a_word(words, size):
    totals = np.concatenate([RNG.integers(1, 40, 5), RNG.integers(0, 9, words)])
    edges = cut(totals, 5, 5 + words, size)
    assert (edges[0], edges[-1], len(edges)) == (5, 5 + words, size + 1)
    assert edges == sorted(edges)
    parts = [totals[a:b].sum() for a, b in zip(edges, edges[1:], strict=False)]
    assert max(parts) <= totals[5:].sum() / size + totals[5:].max()


def test_a_slab_without_records_can_be_cut():
    assert cut(np.zeros(4, np.int64), 0, 4, 3)[-1] == 4
