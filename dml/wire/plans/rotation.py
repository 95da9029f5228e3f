"""Rotation (Gemulla 2011): who works on which blocks in which round; pure arithmetic.

    two tables, 4 blocks, 2 ranks         contexts
    round 0: the cells 0                 0  1  2  3        A round's cells share no
    round 1: the cells 1      words  0   0  1  2  3  r0    row. A rank keeps its words;
    …                                1   3  0  1  2  r0    contexts pass from below to
                                     2   2  3  0  1  r1    above, round the ring, and
                                     3   1  2  3  0  r1    are home after all rounds.

So any number of ranks changes the same numbers in the same order as one alone.
"""

from typing import NamedTuple

from dml.wire.plans.topology import chunks

Cell = tuple[int, int]  # a block of words, a block of contexts
Task = tuple[Cell, ...]  # cells that one rank takes in a round
Round = tuple[Task, ...]  # tasks that share no block


class Turn(NamedTuple):
    """What a rank does: receive blocks, work on cells, send blocks on."""

    cells: Task
    take: tuple[tuple[int, int], ...]  # blocks, and the ranks that send them
    give: tuple[tuple[int, int], ...]  # blocks, and the ranks to send them to


def rounds(blocks: int, tables: int = 2) -> tuple[Round, ...]:
    """Return the rounds of one epoch, every cell once.

    With two tables, round s has the cells (b, b + s). With one, a block is words and
    contexts at once: a tournament, in which block b meets c as (b, c) and (c, b), after
    a round in which each meets itself.
    """
    if tables == 2:
        return tuple(
            tuple(((b, (b + s) % blocks),) for b in range(blocks))
            for s in range(blocks)
        )
    alone: Round = tuple(((b, b),) for b in range(blocks))
    if blocks == 1:
        return (alone,)
    return (alone, *(meetings(blocks, turn) for turn in range(blocks - 1 + blocks % 2)))


def meetings(blocks: int, turn: int) -> Round:
    """Pair the blocks by the circle method; of an odd number, one rests."""
    circle = blocks - 1 + blocks % 2  # all go round but the last of an even number
    pairs = [
        sorted(((turn + k) % circle, (turn - k) % circle))
        for k in range(1, (circle + 1) // 2)
    ]
    if circle < blocks:
        pairs.append([turn % circle, circle])
    return tuple(((b, c), (c, b)) for b, c in sorted(pairs))


def held(task: Task, blocks: int, tables: int = 2) -> tuple[int, ...]:
    """Name the blocks of a task: words 0 … blocks-1, contexts of two tables after."""
    contexts = blocks if tables == 2 else 0
    both = [block for b, c in task for block in (b, contexts + c)]
    return tuple(dict.fromkeys(both))


def homes(blocks: int, tables: int, size: int) -> list[int]:
    """Return the rank that has each block when an epoch begins, and when it ends."""
    ranks = [
        rank
        for rank, mine in enumerate(chunks(blocks, size))
        for _ in range(blocks)[mine]
    ]
    return ranks * tables


def turns(blocks: int, tables: int, size: int) -> tuple[list[list[Turn]], list[list]]:
    """Return each rank's turns, and the blocks that come home after them, and whence.

    A round's tasks are cut evenly over the ranks, in order: with two tables a rank's
    first task frees the contexts that the rank above needs for its last one.
    """
    schedule = rounds(blocks, tables)
    place = homes(blocks, tables, size)
    last: dict[int, list] = {}  # by block: what the one who used it last will give
    ranks: list[list[Turn]] = [[] for _ in range(size)]
    gives: list[list[list]] = [[] for _ in range(size)]
    for one in schedule:
        for rank, mine in enumerate(chunks(len(one), size)):
            for task in one[mine]:
                take = []
                for block in held(task, blocks, tables):
                    if place[block] != rank:
                        take.append((block, place[block]))
                        last[block].append((block, rank))
                    place[block] = rank
                gives[rank].append([])
                last |= dict.fromkeys(held(task, blocks, tables), gives[rank][-1])
                ranks[rank].append(Turn(task, tuple(take), ()))
    back: list[list] = [[] for _ in range(size)]
    for block, home in enumerate(homes(blocks, tables, size)):
        if place[block] != home:
            last[block].append((block, home))
            back[home].append((block, place[block]))
    return [
        [
            turn._replace(give=tuple(give))
            for turn, give in zip(mine, given, strict=True)
        ]
        for mine, given in zip(ranks, gives, strict=True)
    ], back
