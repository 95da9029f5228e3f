"""Shared-window all-reduce on one host: no message carries data."""

from collections.abc import Iterable, Sequence

import numpy as np

from dml.types import Comm, Op, Registered, Stage
from dml.wire.comm.buffers import allocate, flat, peers, release
from dml.wire.plans.topology import SMALL, STAGE, chunks, segments

BLOCK = 1 << 16  # bytes that are added at once, so that they stay in the cache
MOST_KEPT = 256  # registered buffers whose chunks are known
SLOTS = 3  # one is filled, one is added up, one may still be read


def shared_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks of one host.

        rank 0 │ chunk 0 │ chunk 1 │ chunk 2 │      meet; rank r adds up chunk r of
        rank 1 │ chunk 0 │ chunk 1 │ chunk 2 │      all buffers in rank order, and
        rank 2 │ chunk 0 │ chunk 1 │ chunk 2 │      writes it into all; meet
                    0         1         2

    Every word is ((x_0 + x_1) + x_2) + … + x_{p-1}. Registered buffers are reduced
    where they lie; plain ones pass through a window in stages, small ones in one.
    2 meetings, no words sent, 2n read or written a rank: the floor is the memory.
    """
    buffer = flat(comm, buffer)
    if comm.size == 1:
        return
    if buffer.nbytes <= SMALL:
        return add_everything(comm, buffer, op)
    registered = my_chunk(comm, buffer)
    if registered is None:
        return add_in_stages(comm, buffer, op)
    window, theirs = registered
    window.meet(comm.platform.pause)
    add_up(comm, theirs, theirs[0], op, theirs[1:])
    window.meet(comm.platform.pause)


def my_chunk(comm: Comm, buffer: np.ndarray) -> Registered | None:
    """My chunk of all ranks' registered buffers; kept, as most are reduced again."""
    known = comm.cache.chunks
    if id(buffer) in known and known[id(buffer)][0] is buffer:
        return known[id(buffer)][1]
    registered = peers(comm, buffer)
    if registered is None:
        return None
    mine = chunks(len(buffer), comm.size)[comm.rank]
    found = registered[0], [part[mine] for part in registered[1]]
    if len(known) >= MOST_KEPT:
        known.clear()
    known[id(buffer)] = buffer, found
    return found


def add_up(
    comm: Comm,
    sources: Sequence[np.ndarray],
    total: np.ndarray,
    op: Op,
    copies: Iterable[np.ndarray] = (),
) -> None:
    """total, and each of copies, ← the sources in rank order; total may be the first.

    By blocks, so that each is read from memory once and written once.
    """
    if total.nbytes <= BLOCK:
        return add_block(comm, sources, total, op, copies)
    for block in segments(len(total), BLOCK // total.itemsize):
        parts = [source[block] for source in sources]
        add_block(comm, parts, total[block], op, [copy[block] for copy in copies])


def add_block(
    comm: Comm,
    sources: Sequence[np.ndarray],
    total: np.ndarray,
    op: Op,
    copies: Iterable[np.ndarray],
) -> None:
    if len(sources) == 1:
        total[...] = sources[0]
    before = sources[0]
    for source in sources[1:]:
        comm.Reduce_local(source, before, op, total)
        before = total
    for copy in copies:
        copy[...] = total


def add_everything(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Show the buffer, meet once, add up all buffers: for small ones."""
    stage = staging(comm)
    shown = slot(stage, buffer)
    shown[comm.rank][...] = buffer
    stage.window.meet(comm.platform.pause)
    add_up(comm, shown, buffer, op)


def add_in_stages(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Pass a plain buffer through the window: show stage k+1 while k is collected."""
    stage = staging(comm)
    rank, size = comm.rank, comm.size

    def show(words: np.ndarray) -> list[np.ndarray]:
        shown, mine = slot(stage, words), chunks(len(words), size)[rank]
        shown[rank][: mine.start] = words[: mine.start]
        shown[rank][mine.stop :] = words[mine.stop :]
        return shown

    def add(words: np.ndarray, shown: list[np.ndarray]) -> None:
        mine = chunks(len(words), size)[rank]
        sources = [part[mine] for part in shown]
        total, sources[rank] = sources[rank], words[mine]
        add_up(comm, sources, total, op, [words[mine]])

    def collect(words: np.ndarray, shown: list[np.ndarray]) -> None:
        for peer, theirs in enumerate(chunks(len(words), size)):
            if peer != rank:
                words[theirs] = shown[peer][theirs]

    before: tuple | None = None
    for piece in segments(len(buffer), STAGE // buffer.itemsize):
        words = buffer[piece]
        shown = show(words)
        stage.window.meet(comm.platform.pause)
        add(words, shown)
        if before:
            collect(*before)
        before = words, shown
    stage.window.meet(comm.platform.pause)
    if before:
        collect(*before)


def shared_scatter(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], op: Op = np.add
) -> list[np.ndarray]:
    """Reduce part r of the buffer to rank r; return all ranks' buffers as shown."""
    registered = peers(comm, buffer) or peers(comm, copied(comm, buffer))
    assert registered  # `copied` is
    shown = registered[1]
    staging(comm).window.meet(comm.platform.pause)
    mine = parts[comm.rank]
    total = np.empty_like(buffer[mine])
    add_up(comm, [part[mine] for part in shown], total, op, [buffer[mine]])
    return shown


def shared_gather(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], shown: list[np.ndarray]
) -> None:
    """Copy part r of rank r's buffer into everyone's, for every r."""
    meet = staging(comm).window.meet
    mine = parts[comm.rank]
    shown[comm.rank][mine] = buffer[mine]  # which are the same where registered
    meet(comm.platform.pause)
    for peer, theirs in enumerate(parts):
        if peer != comm.rank:
            buffer[theirs] = shown[peer][theirs]
    meet(comm.platform.pause)


def copied(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """Copy a plain buffer into registered memory that is kept for the next call."""
    memory = comm.cache.copy
    if memory is None or len(memory) < buffer.nbytes:
        if memory is not None:
            release(comm, memory)
        memory = comm.cache.copy = allocate(comm, buffer.nbytes, np.uint8)
    copy = memory[: buffer.nbytes].view(buffer.dtype)
    copy[...] = buffer
    return copy


def staging(comm: Comm) -> Stage:
    """Return the window through which plain buffers pass; collective at first.

    A slot is filled again after two barriers, so all ranks have read it.
    """
    stage = comm.cache.stage
    if stage is None:
        window = comm.platform.shared_window(SLOTS * STAGE)
        stage = comm.cache.stage = Stage(window, [[] for _ in range(SLOTS)])
    return stage


def slot(stage: Stage, like: np.ndarray) -> list[np.ndarray]:
    """Return every rank's next slot, as long as `like`."""
    turn = stage.turn
    stage.turn = (turn + 1) % SLOTS
    views = stage.views[turn]  # of its last use, most often the same
    if not views or len(views[0]) != len(like) or views[0].dtype is not like.dtype:
        here = slice(turn * STAGE, turn * STAGE + like.nbytes)
        views = [part[here].view(like.dtype) for part in stage.window.parts]
        stage.views[turn] = views
    return views
