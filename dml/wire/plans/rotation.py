"""Rotation (Gemulla 2011): the cells and blocks of each rank, by round.

An example has a row of each of two tables, such as the vectors of a word and of a
context (GloVe). Tables are divided into blocks; a cell is a pair of blocks.

    two tables, 4 blocks, 2 ranks         contexts
    round 0: the cells 0                 0  1  2  3        Cells of a round share no
    round 1: the cells 1      words  0   0  1  2  3  r0    row. A rank keeps its words;
    …                                1   3  0  1  2  r0    contexts pass around the ring
                                     2   2  3  0  1  r1    from rank r to r-1, and are
                                     3   1  2  3  0  r1    back after all rounds.

Therefore rows are changed in the same order by any number of ranks. Pure arithmetic.
"""

from typing import NamedTuple

from dml.wire.plans.topology import chunks

Cell = tuple[int, int]  # index of a block of words, and of a block of contexts
Task = tuple[Cell, ...]  # cells that one rank works on, one after another
Round = tuple[Task, ...]  # tasks that share no block


class Turn(NamedTuple):
    """One step of a rank: receive blocks, work on cells, send blocks."""

    cells: Task
    receives: tuple[tuple[int, int], ...]  # (block, source)
    sends: tuple[tuple[int, int], ...]  # (block, destination)


def rounds(blocks: int, tables: int = 2) -> tuple[Round, ...]:
    """Return the rounds of one epoch, with every cell once.

    With two tables, round s has the cells (b, b + s mod blocks). With one table, words
    and contexts are the same blocks: round 0 has the cells (b, b), and the following
    rounds are a tournament in which a pair of blocks has the cells (b, c) and (c, b).
    """
    if tables == 2:
        return tuple(
            tuple(((b, (b + s) % blocks),) for b in range(blocks))
            for s in range(blocks)
        )
    diagonal: Round = tuple(((b, b),) for b in range(blocks))
    if blocks == 1:
        return (diagonal,)
    count = blocks - 1 + blocks % 2  # rounds of the tournament
    return (diagonal, *(pairings(blocks, index) for index in range(count)))


def pairings(blocks: int, index: int) -> Round:
    """Return a round of a tournament of blocks, by the circle method.

    If the number of blocks is odd, one block is unpaired.
    """
    circle = blocks - 1 + blocks % 2  # odd; without the last block if `blocks` is even
    pairs = [
        sorted(((index + k) % circle, (index - k) % circle))
        for k in range(1, (circle + 1) // 2)
    ]
    if circle < blocks:
        pairs.append([index % circle, circle])
    return tuple(((b, c), (c, b)) for b, c in sorted(pairs))


def blocks_of(task: Task, blocks: int, tables: int = 2) -> tuple[int, ...]:
    """Return the distinct blocks of a task.

    Blocks of words have numbers from 0, blocks of a second table from `blocks` on.
    """
    first_context = blocks if tables == 2 else 0
    numbers = [block for b, c in task for block in (b, first_context + c)]
    return tuple(dict.fromkeys(numbers))


def home_ranks(blocks: int, tables: int, size: int) -> list[int]:
    """Return the rank of each block at the start and at the end of an epoch."""
    ranks = [
        rank
        for rank, part in enumerate(chunks(blocks, size))
        for _ in range(blocks)[part]
    ]
    return ranks * tables


def turns(blocks: int, tables: int, size: int) -> tuple[list[list[Turn]], list[list]]:
    """Return the turns of each rank, and the receives of each rank after its last turn.

    The tasks of a round are divided evenly over the ranks, in order: with two tables,
    the first task of rank r frees the contexts that rank r-1 needs for its last task.
    The receives after the last turn, (block, source), return blocks to their home
    ranks.
    """
    schedule = rounds(blocks, tables)
    owner = home_ranks(blocks, tables, size)  # by block: its current rank
    last: dict[int, list] = {}  # by block: the sends of the turn that used it last
    ranks: list[list[Turn]] = [[] for _ in range(size)]
    sends: list[list[list]] = [[] for _ in range(size)]
    for tasks in schedule:
        for rank, part in enumerate(chunks(len(tasks), size)):
            for task in tasks[part]:
                receives = []
                for block in blocks_of(task, blocks, tables):
                    if owner[block] != rank:
                        receives.append((block, owner[block]))
                        last[block].append((block, rank))
                    owner[block] = rank
                sends[rank].append([])
                last |= dict.fromkeys(blocks_of(task, blocks, tables), sends[rank][-1])
                ranks[rank].append(Turn(task, tuple(receives), ()))
    returns: list[list] = [[] for _ in range(size)]
    for block, home in enumerate(home_ranks(blocks, tables, size)):
        if owner[block] != home:
            last[block].append((block, home))
            returns[home].append((block, owner[block]))
    return [
        [
            turn._replace(sends=tuple(turn_sends))
            for turn, turn_sends in zip(rank_turns, rank_sends, strict=True)
        ]
        for rank_turns, rank_sends in zip(ranks, sends, strict=True)
    ], returns
