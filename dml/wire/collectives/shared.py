"""All-reduce in shared memory on one host, without messages."""

from collections.abc import Iterable, Sequence

import numpy as np

from dml.types import Comm, Op, Registered, Stage
from dml.wire.comm.buffers import allocate, flat, peers, release
from dml.wire.plans.topology import SMALL, STAGE, chunks, segments

BLOCK = 1 << 16  # bytes that are reduced at once, so that they stay in the cache
MAX_CACHED = 256  # registered buffers whose chunks are cached
SLOTS = 3  # one is filled, one is reduced, one may still be read


def shared_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks of one host.

        rank 0 │ chunk 0 │ chunk 1 │ chunk 2 │      barrier; rank r adds up chunk r
        rank 1 │ chunk 0 │ chunk 1 │ chunk 2 │      of all buffers in rank order, and
        rank 2 │ chunk 0 │ chunk 1 │ chunk 2 │      writes it to all buffers; barrier
                    0         1         2

    Every word is ((x_0 + x_1) + x_2) + … + x_{p-1}. Registered buffers are reduced in
    place; plain buffers are copied through a window in stages, small ones in one stage.
    2 barriers, no words sent, 2n words read or written per rank: memory is the limit.
    """
    buffer = flat(comm, buffer)
    if comm.size == 1:
        return
    if buffer.nbytes <= SMALL:
        return reduce_small(comm, buffer, op)
    registered = own_chunk(comm, buffer)
    if registered is None:
        return reduce_in_stages(comm, buffer, op)
    window, copies = registered
    window.barrier(comm.platform.pause)
    add_up(comm, copies, copies[0], op, copies[1:])
    window.barrier(comm.platform.pause)


def own_chunk(comm: Comm, buffer: np.ndarray) -> Registered | None:
    """Return this rank's chunk of all ranks' buffers; None for a plain buffer.

    The views are cached, because most buffers are reduced many times.
    """
    cached = comm.cache.chunks
    if id(buffer) in cached and cached[id(buffer)][0] is buffer:
        return cached[id(buffer)][1]
    registered = peers(comm, buffer)
    if registered is None:
        return None
    chunk = chunks(len(buffer), comm.size)[comm.rank]
    views = registered[0], [part[chunk] for part in registered[1]]
    if len(cached) >= MAX_CACHED:
        cached.clear()
    cached[id(buffer)] = buffer, views
    return views


def add_up(
    comm: Comm,
    sources: Sequence[np.ndarray],
    total: np.ndarray,
    op: Op,
    copies: Iterable[np.ndarray] = (),
) -> None:
    """Reduce the sources in rank order into `total`, and copy it to all `copies`.

    It works block by block, so that each word is read from memory once and written
    once.

    Args:
      comm: The ranks.
      sources: Words of all ranks, in rank order.
      total: The result; it may be the first source.
      op: The reduction.
      copies: Further arrays that receive the result.
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
    """Do the same as `add_up`, for one block."""
    if len(sources) == 1:
        total[...] = sources[0]
    partial = sources[0]
    for source in sources[1:]:
        comm.Reduce_local(source, partial, op, total)
        partial = total
    for copy in copies:
        copy[...] = total


def reduce_small(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Reduce a small buffer: after one barrier, every rank adds up all buffers."""
    stage = staging(comm)
    slots = next_slot(stage, buffer)
    slots[comm.rank][...] = buffer
    stage.window.barrier(comm.platform.pause)
    add_up(comm, slots, buffer, op)


def reduce_in_stages(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Reduce a plain buffer through the window: copy stage k+1 in and stage k out.

    Each rank reduces its chunk of every stage. It reads its own words of the chunk from
    the buffer, and does not copy them in.
    """
    stage = staging(comm)
    rank, size = comm.rank, comm.size

    def copy_in(words: np.ndarray) -> list[np.ndarray]:
        slots, own = next_slot(stage, words), chunks(len(words), size)[rank]
        slots[rank][: own.start] = words[: own.start]
        slots[rank][own.stop :] = words[own.stop :]
        return slots

    def reduce_chunk(words: np.ndarray, slots: list[np.ndarray]) -> None:
        own = chunks(len(words), size)[rank]
        sources = [part[own] for part in slots]
        total, sources[rank] = sources[rank], words[own]
        add_up(comm, sources, total, op, [words[own]])

    def copy_out(words: np.ndarray, slots: list[np.ndarray]) -> None:
        for peer, chunk in enumerate(chunks(len(words), size)):
            if peer != rank:
                words[chunk] = slots[peer][chunk]

    previous: tuple | None = None
    for piece in segments(len(buffer), STAGE // buffer.itemsize):
        words = buffer[piece]
        slots = copy_in(words)
        stage.window.barrier(comm.platform.pause)
        reduce_chunk(words, slots)
        if previous:
            copy_out(*previous)
        previous = words, slots
    stage.window.barrier(comm.platform.pause)
    if previous:
        copy_out(*previous)


def shared_scatter(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], op: Op = np.add
) -> list[np.ndarray]:
    """Reduce part r of the buffer on rank r; return views of all ranks' buffers.

    A plain buffer is copied to registered memory first.
    """
    registered = peers(comm, buffer) or peers(comm, registered_copy(comm, buffer))
    assert registered  # a copy always is
    buffers = registered[1]
    staging(comm).window.barrier(comm.platform.pause)
    own = parts[comm.rank]
    total = np.empty_like(buffer[own])
    add_up(comm, [part[own] for part in buffers], total, op, [buffer[own]])
    return buffers


def shared_gather(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], buffers: list[np.ndarray]
) -> None:
    """Copy part r of rank r's buffer to all ranks, for every r.

    Args:
      comm: The ranks.
      buffer: This rank's buffer.
      parts: The part of each rank.
      buffers: The views that `shared_scatter` returned.
    """
    barrier = staging(comm).window.barrier
    own = parts[comm.rank]
    buffers[comm.rank][own] = buffer[own]  # the same memory if registered
    barrier(comm.platform.pause)
    for peer, part in enumerate(parts):
        if peer != comm.rank:
            buffer[part] = buffers[peer][part]
    barrier(comm.platform.pause)


def registered_copy(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """Copy a plain buffer to registered memory, which later calls use again."""
    memory = comm.cache.copy
    if memory is None or len(memory) < buffer.nbytes:
        if memory is not None:
            release(comm, memory)
        memory = comm.cache.copy = allocate(comm, buffer.nbytes, np.uint8)
    copy = memory[: buffer.nbytes].view(buffer.dtype)
    copy[...] = buffer
    return copy


def staging(comm: Comm) -> Stage:
    """Return the window for plain buffers; collective at the first call.

    A slot is filled again after two barriers, when all ranks have read it.
    """
    stage = comm.cache.stage
    if stage is None:
        window = comm.platform.shared_window(SLOTS * STAGE)
        stage = comm.cache.stage = Stage(window, [[] for _ in range(SLOTS)])
    return stage


def next_slot(stage: Stage, like: np.ndarray) -> list[np.ndarray]:
    """Return all ranks' next slots, as views with the length and dtype of `like`."""
    slot = stage.next_slot
    stage.next_slot = (slot + 1) % SLOTS
    views = stage.views[slot]  # those of the last use often fit
    if not views or len(views[0]) != len(like) or views[0].dtype is not like.dtype:
        place = slice(slot * STAGE, slot * STAGE + like.nbytes)
        views = [part[place].view(like.dtype) for part in stage.window.parts]
        stage.views[slot] = views
    return views
