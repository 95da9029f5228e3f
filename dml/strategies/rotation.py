"""Rotation (Gemulla 2011): ranks work on blocks that share no row, then pass them on.

      words  contexts           In each turn a rank works on blocks that no other rank
    r0 │ 0     0 ──► r1         uses. The previous rank of a block sends a message: the
    r0 │ 1     1                rows of the block or, if all ranks share one table, an
    r1 │ 2     2 ──► r0         empty message. A rank sends the contexts of its first
    r1 │ 3     3                block early; the receiver needs them last.

An example has two rows: a word and a context, or a user and an item. Every row changes
in the order of one rank, so results are bit-identical on any number of ranks, with
messages and with shared memory. With messages each of the B blocks of contexts, n/B
numbers, is sent p times per epoch: pn words for examples with two sides, plus the
losses of all cells.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.shared.workers import Descent, epoch_settings, serial_descent
from dml.types import BadInput, CountedComm, Kernel, Problem, Step, ranges
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.block_transfers import BlockTransfers
from dml.wire.memory.shared import shared_zeros
from dml.wire.memory.state import Order
from dml.wire.plans import rotation as schedule
from dml.wire.plans.rotation import Cell


@ranges.checked
def rotation(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: CountedComm,
    timer: Timer,
    by_messages: bool | None = None,
) -> Iterator[Step]:
    """Train as one worker of `hogwild` does; yield a Step per epoch.

    Args:
      problem: Problem to train, equal on all ranks; it needs a kernel with blocks of
        rows.
      batches: Order of each epoch, a part for each cell of `cells`; equal on all ranks.
      update: Learning rates; no momentum, as rows are sent without it.
      comm: Ranks.
      timer: Measures the phases.
      by_messages: Whether blocks are sent as messages, or stay in shared memory; None:
        shared memory if all ranks are on one host.
    """
    blocks = problem.kernel.blocks
    sides, count = shape(problem.kernel)
    by_messages = checked(comm, count, update, by_messages)
    homes = schedule.home_ranks(count, sides, comm.size)
    ranks, back = schedule.turns(count, sides, comm.size)
    table = problem.params.copy() if by_messages else shared_table(comm, problem.params)
    parts = {n: table[rows].reshape(-1) for n, rows in enumerate(blocks)}
    transfers = BlockTransfers(comm, parts if by_messages else {})
    number_of = {cell: n for n, cell in enumerate(cells(count, sides))}
    descend, number = serial_descent(problem), 0
    for epoch, order in enumerate(timer.waits("update", batches), 1):
        sent = comm.bytes_sent
        losses = np.zeros(len(number_of))
        data, settings = epoch_settings(problem, update, epoch)
        for turn in ranks[comm.rank]:
            with timer("wait"):
                transfers.receive(turn.receives)
            cell_numbers = [number_of[cell] for cell in turn.cells]
            visits = [
                order.visits[order.bounds[n] : order.bounds[n + 1]]
                for n in cell_numbers
            ]
            work = load(problem.kernel, order, visits) * comm.size
            with timer("update"):
                comm.platform.work(work)
                for n, edges in zip(cell_numbers, visits, strict=True):
                    losses[n] = descend(table, data, edges, settings)
            with timer("wire"):
                transfers.send(turn.sends)
        with timer("wait"):
            transfers.receive(back[comm.rank])
            tree_allreduce(comm, losses)  # exact: a loss is 0 on all ranks but one
        number += order.steps
        yield Step(
            number=number,
            loss=losses.sum() / order.steps,
            params=partial(collected, transfers, homes, table),
            examples=order.steps,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // table.itemsize,
            epoch=epoch,
        )


def checked(
    comm: CountedComm, blocks: int, update: Descent, by_messages: bool | None
) -> bool:
    """Raise BadInput for arguments that do not fit; return whether blocks are sent.

    Args:
      comm: Ranks.
      blocks: Number of blocks of each side.
      update: Learning rates and momentum.
      by_messages: As in `rotation`.
    """
    hosts = max(comm.platform.hosts()) + 1
    if comm.size > blocks:
        raise BadInput(
            f"expected at most {blocks} ranks for {blocks} blocks, got {comm.size}; "
            f"pass --blocks=<at least {comm.size}>"
        )
    if update.momentum:
        raise BadInput(
            f"expected no momentum with rotation, got {update.momentum:g}; pass "
            "--momentum=0"
        )
    if by_messages is False and hosts > 1:
        raise BadInput(
            "expected all ranks on one host with --medium=memory, got ranks on "
            f"{hosts}; pass --medium=messages"
        )
    return hosts > 1 if by_messages is None else by_messages


def shape(kernel: Kernel) -> tuple[int, int]:
    """Return the number of sides, 1 or 2, and the number of blocks of each."""
    return kernel.sides, len(kernel.blocks) // kernel.sides


def cells(count: int, sides: int) -> list[Cell]:
    """Return the cells in the order of an epoch."""
    rounds = schedule.rounds(count, sides)
    return [cell for tasks in rounds for task in tasks for cell in task]


def shared_table(comm: CountedComm, start: np.ndarray) -> np.ndarray:
    """Copy the start value to a table in shared memory of the host."""
    table = shared_zeros(comm, start.size, start.dtype).reshape(start.shape)
    if comm.rank == 0:
        table[:] = start
    comm.Barrier()
    return table


def load(kernel: Kernel, order: Order, visits: Sequence[np.ndarray]) -> float:
    """Return the share of all examples that are in these blocks."""
    if kernel.sizes is None:
        return sum(map(len, visits)) / len(order.visits)
    return float(sum(kernel.sizes[edges].sum() for edges in visits) / order.steps)


def collected(
    transfers: BlockTransfers, homes: list[int], table: np.ndarray
) -> np.ndarray | None:
    """Return the table on rank 0, None elsewhere; collective."""
    comm, full = transfers.comm, None
    transfers.wait()
    if comm.rank == 0:
        transfers.receive((block, home) for block, home in enumerate(homes) if home)
        full = table.copy()
    else:
        local = [block for block, home in enumerate(homes) if home == comm.rank]
        transfers.send((block, 0) for block in local)
    transfers.wait()
    comm.Barrier()
    return full


def in_blocks(problem: Problem, count: int) -> tuple[Problem, list[np.ndarray]]:
    """Divide a problem whose edges have a row of each of two sides into blocks.

    The blocks of a side have about equal numbers of edges.

    Args:
      problem: The problem.
      count: Number of blocks of each side.

    Returns:
      The problem with blocks of rows, and the edges of each cell.
    """
    pairs_Ex2 = problem.kernel.data.edges.rows.reshape(-1, 2)
    second = int(pairs_Ex2[:, 1].min())
    limits = [0, second, len(problem.params)]
    edges_of, blocks = [], []
    for side in range(2):
        first, last = limits[side : side + 2]
        counts = np.bincount(pairs_Ex2[:, side] - first, minlength=last - first)
        if not 1 <= count <= last - first:
            raise BadInput(
                f"expected 1 to {last - first} blocks of rows, got {count}; pass "
                f"--blocks=<at most {last - first}>"
            )
        shares = np.cumsum(counts) * count / max(1, int(counts.sum()))
        edges = np.searchsorted(shares, np.arange(1, count)) + 1
        bounds = first + np.concatenate([[0], edges, [last - first]])
        blocks += [slice(*pair) for pair in zip(bounds[:-1], bounds[1:], strict=True)]
        edges_of.append(np.searchsorted(bounds, pairs_Ex2[:, side], "right") - 1)
    kernel = problem.kernel._replace(blocks=blocks, sides=2)
    place = np.empty((count, count), np.int64)
    for n, cell in enumerate(cells(count, 2)):
        place[cell] = n
    cell_E = place[tuple(edges_of)]
    by_cell = np.argsort(cell_E, kind="stable")
    ends = np.cumsum(np.bincount(cell_E, minlength=count * count))
    return problem._replace(kernel=kernel), np.split(by_cell, ends[:-1])


def orders(cells: Sequence[np.ndarray], seed: int = 0) -> Iterator[Order]:
    """Yield the order of each epoch, without end; the edges of a cell are shuffled."""
    bounds = np.cumsum([0, *map(len, cells)])
    epoch = 0
    while True:
        epoch += 1
        draws = np.random.default_rng([seed, epoch])
        visits = np.concatenate([draws.permutation(edges) for edges in cells])
        yield Order(visits, 1, len(visits), bounds)
