"""Who has which block when: every cell once, no block at two ranks, all home again."""

from collections import Counter, deque
from itertools import product

import pytest

from dml.wire.plans.rotation import blocks_of, home_ranks, rounds, turns

EVERY = [
    (blocks, tables, size)
    for blocks, tables in product(range(1, 10), (1, 2))
    for size in range(1, blocks + 1)
]


@pytest.mark.parametrize("blocks, tables", [*product(range(1, 12), (1, 2))])
def test_rounds_have_every_cell_once_and_their_tasks_share_no_block(blocks, tables):
    found = rounds(blocks, tables)
    cells = [cell for one in found for task in one for cell in task]
    assert Counter(cells) == Counter(product(range(blocks), repeat=2))
    assert blocks_of(((1, 1),), 4) == (1, 5)  # of words, and of contexts
    for one in found:
        used = [b for task in one for b in blocks_of(task, blocks, tables)]
        assert len(used) == len(set(used))
    if tables == 2:
        assert len(found) == blocks
    else:  # as in a tournament: each with itself, then ⌊blocks / 2⌋ pairs at a time
        pairs, together = blocks * (blocks - 1) // 2, max(1, blocks // 2)
        assert len(found) == 1 + -(-pairs // together)


def play(blocks, tables, size):
    """Run all ranks with blocking receives; return how often each block moved."""
    ranks, back = turns(blocks, tables, size)
    has = [set() for _ in range(size)]
    for block, home in enumerate(home_ranks(blocks, tables, size)):
        has[home].add(block)
    wire = {}  # by sender, receiver and block: the messages under way
    moves = Counter()

    def take(rank, stops):
        for block, source in stops:
            while not wire.get((source, rank, block)):
                yield
            wire[source, rank, block].popleft()
            assert all(block not in blocks for blocks in has)  # nobody has it now
            has[rank].add(block)

    def live(rank):
        for turn in ranks[rank]:
            yield from take(rank, turn.receives)
            assert set(blocks_of(turn.cells, blocks, tables)) <= has[rank]
            for block, dest in turn.sends:
                assert dest != rank
                has[rank].remove(block)
                moves[block] += 1
                wire.setdefault((rank, dest, block), deque()).append(block)
        yield from take(rank, back[rank])

    alive = [live(rank) for rank in range(size)]
    for _ in range(sum(map(len, ranks)) * 3 * tables + 10 * size):
        alive = [one for one in alive if next(one, "ended") != "ended"]
    assert not alive, "deadlock"
    assert not any(wire.values()), "somebody gave what nobody takes"
    for block, home in enumerate(home_ranks(blocks, tables, size)):
        assert block in has[home]
    assert sum(map(len, has)) == blocks * tables
    return moves


@pytest.mark.parametrize("blocks, tables, size", EVERY)
def test_a_block_is_at_one_rank_at_a_time_and_home_at_the_end(blocks, tables, size):
    moves = play(blocks, tables, size)
    if tables == 2 and size > 1:  # words stay and contexts go round once
        assert moves == Counter({blocks + c: size for c in range(blocks)})


@pytest.mark.parametrize("blocks, tables, size", EVERY)
def test_ranks_work_on_all_cells_in_the_order_of_one_rank(blocks, tables, size):
    """Each block meets the others in that order; a round is divided evenly."""
    ranks, _ = turns(blocks, tables, size)
    one = [turn.cells for turn in turns(blocks, tables, 1)[0][0]]
    every = [task for some in rounds(blocks, tables) for task in some]
    assert one == every
    at = {task: n for n, task in enumerate(every)}
    done = [[at[turn.cells] for turn in mine] for mine in ranks]
    assert all(mine == sorted(mine) for mine in done)
    assert sorted(n for mine in done for n in mine) == list(range(len(every)))
    for some in rounds(blocks, tables):
        counts = [sum(at[task] in mine for task in some) for mine in done]
        assert max(counts) - min(counts) <= 1
