from collections import Counter

import numpy as np
import pytest

from dml import sim
from dml.data.text import tiles
from dml.data.text.cooccurrence import RECORD
from dml.strategies.glove.tiling import tiled
from dml.types import BadInput
from tests.strategies.glove.lattice import WORDS, corpus, order

# tables, blocks, rows, ranks
CASES = [(2, 8, 4, 1), (2, 8, 4, 3), (2, 1, 1 << 16, 2), (2, WORDS, 16, 2)]
CASES += [(1, 8, 4, 1), (1, 7, 5, 4), (1, 2, 16, 3)]
UNKNOWN = [(0, 1, 1), (1, 0, 1), (WORDS + 1, 1, 1), (1, -3, 1)]  # words


def made(records, tables, blocks, rows, ranks=1, seed=0, host=0):
    one = order(tables, blocks, seed, rows)

    def program(comm):
        return tiled(comm, records, WORDS, one)

    return sim.run(program, ranks, sim.Uniform(host=host))[0]


def recovered(found, blocks, tables):
    """Read each record's words back from where its rows are."""
    tile = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    rows = found.grid.words[tile] + found.words
    below = WORDS if tables == 2 else 0
    others = found.grid.contexts[tile] + found.contexts - below
    word = np.argsort(blocks.row) + 1
    return tile, word[rows], word[others]


@pytest.mark.parametrize("tables, blocks, rows, ranks", CASES)
def test_every_record_is_once_in_the_tile_of_its_cell_and_strips(
    tables, blocks, rows, ranks
):
    records = corpus()
    found, dealt = made(records, tables, blocks, rows, ranks)
    tile, words, contexts = recovered(found, dealt, tables)
    logs = np.log(records["value"].astype(np.float32))
    want = Counter(zip(records["word"], records["context"], logs, strict=True))
    if tables == 1:  # only the diagonal is dropped
        want = Counter({key: n for key, n in want.items() if key[0] != key[1]})
    assert want == Counter(zip(words, contexts, found.logs, strict=True))
    # powers of float32: 1e-6 is eight of its steps
    weights = np.minimum((np.exp(found.logs.astype(float)) / 10) ** 0.75, 1)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-6)

    grid_tile = found.grid.tile[dealt.strip[words - 1], dealt.strip[contexts - 1]]
    assert np.array_equal(grid_tile, tile)
    block = np.repeat(np.arange(blocks), np.diff(dealt.edges))[dealt.row]
    for (b, c), here in found.grid.cells.items():
        inside = (here.start <= tile) & (tile < here.stop)
        assert set(block[words[inside] - 1]) <= {b}
        assert set(block[contexts[inside] - 1]) <= {c}
    cells = [*found.grid.cells.values()]
    assert [s.start for s in cells[1:]] == [s.stop for s in cells[:-1]]
    assert max(s.stop for s in cells) == len(found.starts) - 1

    # each word has one row, and strips stay in their blocks
    assert sorted(dealt.row) == list(range(WORDS))
    assert np.array_equal(dealt.strips[dealt.strip] + dealt.offset, dealt.row)
    assert dealt.offset.max() < rows
    stops = np.append(dealt.strips[1:], WORDS)
    assert (dealt.edges[dealt.owner] <= dealt.strips).all()
    assert (stops <= dealt.edges[dealt.owner + 1]).all()


@pytest.mark.parametrize("blocks", (1, 2, 3, 8, 40, WORDS))
def test_blocks_differ_by_no_more_than_the_lightest_word_of_the_fullest(blocks):
    records = corpus()
    each = tiles.histogram(records["word"], records["context"], WORDS)
    assert each.sum() == 2 * len(records)
    dealt = tiles.assign_blocks(each, blocks, 16)
    by_row = np.empty_like(each)
    by_row[dealt.row] = each
    loads = np.add.reduceat(by_row, dealt.edges[:-1])
    fullest = np.argmax(loads)
    last = by_row[dealt.edges[fullest] : dealt.edges[fullest + 1]].min()
    # it was the emptiest when its last word, the lightest, came
    assert loads.max() - last <= loads.min()


def test_blocks_without_words_are_no_trouble():
    dealt = tiles.assign_blocks(np.array([5, 0, 0, 0]), 3, 2)
    assert sorted(dealt.row) == [0, 1, 2, 3]
    grid = tiles.grid(dealt, [(b, c) for b in range(3) for c in range(3)], 2, 0)
    assert sorted(grid.tile.reshape(-1)) == list(range(len(grid.words)))


@pytest.mark.parametrize("tables", (1, 2))
def test_the_order_depends_on_the_seed_alone(tables):
    records = corpus()

    def bits(ranks, seed, host=0):
        found, dealt = made(records, tables, 8, 4, ranks, seed, host)
        return [
            x.tobytes() for x in (*dealt, *found[2:], found.starts, *found.grid[:3])
        ]

    alone = bits(1, 0)
    for ranks, host in ((1, 0), (2, 0), (3, 0), (8, 0), (5, 2)):
        assert bits(ranks, 0, host) == alone
    assert bits(1, 1) != alone


def lying(count, seed, tile=(0, 1, 2, 3)):
    """Shuffle numbered records in tiles of a fourth, one of them empty."""
    starts = np.array([0, count // 2, count // 2, count * 3 // 4, count])
    numbers = np.arange(count).astype(np.uint16)
    out = numbers.copy(), numbers + np.uint16(7), numbers.astype(np.float32)
    tiles.shuffle(starts, np.array(tile), seed, out)
    assert np.array_equal(out[0] + np.uint16(7), out[1])  # records stay whole
    assert np.array_equal(out[0], out[2])
    return starts, out[0]


def test_shuffling_permutes_the_records_inside_each_tile():
    starts, found = lying(1000, 3)
    for start, stop in zip(starts, starts[1:], strict=False):
        assert sorted(found[start:stop]) == list(range(start, stop))
        assert stop - start < 2 or (found[start:stop] != np.arange(start, stop)).any()
    _, some = lying(1000, 3, tile=(0,))
    assert np.array_equal(some[:500], found[:500])  # whoever shuffles the others
    assert np.array_equal(some[500:], np.arange(500, 1000))
    halves = [found[500:750] - 500, found[750:] - 750]
    assert not np.array_equal(*halves)  # each tile by its own stream
    assert not np.array_equal(lying(1000, 4)[1], found)


def test_shuffling_leaves_no_record_where_it_was_more_often_than_chance():
    first = np.array([lying(64, seed)[1][:32] for seed in range(400)])
    # 400 seeds x 32 places x 32 records: 12.5 each, by a Poisson of 3.5; six of those
    counts = np.array([np.bincount(first[:, n], minlength=32) for n in range(32)])
    assert abs(counts - 12.5).max() < 6 * 3.5
    # chi-square of 31 * 31 degrees of freedom: 961, by 44
    assert abs(((counts - 12.5) ** 2 / 12.5).sum() - 961) < 5 * 44


def test_a_tile_has_the_rows_that_fit_and_16_bits_can_name():
    for nbytes, rows in [(1, 1 << 16), (10, 1 << 16), (20, 1 << 15), (448, 1 << 10)]:
        assert tiles.tile_rows(nbytes) == rows and rows * nbytes <= tiles.CACHE_BYTES
    assert tiles.tile_rows(2496) == 256 and tiles.tile_rows(1_000_000) == 16
    words = (1 << 16) + 2
    dealt = tiles.assign_blocks(np.ones(words, np.int64), 1, tiles.tile_rows(1))
    assert dealt.offset.dtype == np.uint16
    rows = dealt.strips[dealt.strip] + dealt.offset.astype(int)
    assert np.array_equal(rows, dealt.row) and len(dealt.strips) == 2


@pytest.mark.parametrize(
    "tables, blocks, records, message",
    [
        (2, 0, [(1, 2, 1)], f"1 to {WORDS} .* got 0; pass --blocks"),
        (2, WORDS + 1, [(1, 2, 1)], f"1 to {WORDS} .* got {WORDS + 1}; pass --blocks"),
        *((2, 2, [(1, 2, 1), pair], f"of words 1 to {WORDS}, got") for pair in UNKNOWN),
        *((2, 2, [(2, 1, n)], "counts above 0, got") for n in (0.0, -1.0, np.nan)),
        (2, 2, [], "got none among 0; pass"),
        (1, 2, [(2, 2, 1)], "got none among 1; pass"),
    ],
)
def test_records_that_cannot_be_tiled_are_refused(tables, blocks, records, message):
    for ranks in (1, 2):
        with pytest.raises(BadInput, match=message):
            made(np.array(records, RECORD), tables, blocks, 16, ranks)
