"""All-reduce in shared memory on one host, without messages."""

from collections.abc import Iterable, Sequence

import numpy as np

from dml.types import Comm, Op, Registered, Stage
from dml.wire.comm.buffers import allocate, flat, has_memory, registered_views, release
from dml.wire.comm.plain import as_comm
from dml.wire.plans.topology import SMALL, STAGE, chunks, segments

BLOCK = 1 << 16  # bytes of a block of `add_up`, which stays in the cache
MAX_CACHED = 256  # registered buffers whose chunks are cached
SLOTS = 3  # one is filled, one is reduced, another rank may still read one


def shared_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks of one host.

        rank 0 │ chunk 0 │ chunk 1 │ chunk 2 │      barrier; rank r adds up chunk r
        rank 1 │ chunk 0 │ chunk 1 │ chunk 2 │      of all buffers in rank order, and
        rank 2 │ chunk 0 │ chunk 1 │ chunk 2 │      writes it to all buffers; barrier
                    0         1         2

    Every element is ((x_0 + x_1) + x_2) + … + x_{p-1}. Registered buffers are in shared
    memory and are reduced in place; plain buffers are copied through a shared window in
    stages of STAGE bytes. A buffer of at most SMALL bytes is copied to the window, and
    after one barrier every rank adds up all copies. Registered buffers: 2 barriers, no
    elements sent, n elements read and n written per rank: memory limits the speed.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
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
    """Return views of this rank's chunk in the buffers of all ranks; None if plain.

    The views are cached, because most buffers are reduced many times.
    """
    cached = comm.cache.chunks
    if id(buffer) in cached and cached[id(buffer)][0] is buffer:
        return cached[id(buffer)][1]
    registered = registered_views(comm, buffer)
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

    The reduction runs block by block, so that each element is read from memory once and
    written once.

    Args:
      comm: The ranks.
      sources: Arrays to reduce, in rank order.
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
    """Perform `add_up` for one block."""
    if len(sources) == 1:
        total[...] = sources[0]
    partial = sources[0]
    for source in sources[1:]:
        comm.Reduce_local(source, partial, op, total)
        partial = total
    for copy in copies:
        copy[...] = total


def reduce_small(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Reduce a small buffer: after a barrier, every rank adds up the buffers of all."""
    stage = comm.cache.stage or staging(comm)
    first, *others = slots = next_slot(stage, buffer)
    slots[comm.rank][...] = buffer
    stage.window.barrier(comm.platform.pause)
    for slot in others:  # as `add_up`, with fewer calls
        comm.Reduce_local(slot, first, op, buffer)
        first = buffer


def reduce_in_stages(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Reduce a plain buffer through the window: copy stage k+1 in and stage k out.

    Each rank reduces its chunk of every stage. It reads its own term of the chunk from
    the buffer, without a copy to the window.
    """
    stage = staging(comm)
    rank, size = comm.rank, comm.size

    def copy_in(piece: np.ndarray) -> list[np.ndarray]:
        slots, own = next_slot(stage, piece), chunks(len(piece), size)[rank]
        slots[rank][: own.start] = piece[: own.start]
        slots[rank][own.stop :] = piece[own.stop :]
        return slots

    def reduce_chunk(piece: np.ndarray, slots: list[np.ndarray]) -> None:
        own = chunks(len(piece), size)[rank]
        sources = [slot[own] for slot in slots]
        total = sources[rank]
        sources[rank] = piece[own]
        add_up(comm, sources, total, op, [piece[own]])

    def copy_out(piece: np.ndarray, slots: list[np.ndarray]) -> None:
        for peer, chunk in enumerate(chunks(len(piece), size)):
            if peer != rank:
                piece[chunk] = slots[peer][chunk]

    previous: tuple | None = None
    for part in segments(len(buffer), STAGE // buffer.itemsize):
        piece = buffer[part]
        slots = copy_in(piece)
        stage.window.barrier(comm.platform.pause)
        reduce_chunk(piece, slots)
        if previous:
            copy_out(*previous)
        previous = piece, slots
    stage.window.barrier(comm.platform.pause)
    if previous:
        copy_out(*previous)


def shared_scatter(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], op: Op = np.add
) -> list[np.ndarray]:
    """Reduce part r of the buffer on rank r; return views of all ranks' buffers.

    A plain buffer is copied to registered memory first. A sim.Phantom is not: it stands
    for the buffers of all ranks.
    """
    registered = registered_views(comm, buffer)
    if not registered:
        part = buffer if has_memory(buffer) else buffer[:1]
        registered = registered_views(comm, registered_copy(comm, part))
        assert registered  # registered_copy returns registered memory
    buffers = registered[1] if has_memory(buffer) else [buffer] * comm.size
    staging(comm).window.barrier(comm.platform.pause)
    own = parts[comm.rank]
    total = np.empty_like(buffer[own])
    add_up(comm, [part[own] for part in buffers], total, op, [buffer[own]])
    return buffers


def shared_gather(
    comm: Comm, buffer: np.ndarray, parts: Sequence[slice], buffers: list[np.ndarray]
) -> None:
    """Copy part r of the buffer of rank r to all ranks, for every r.

    Args:
      comm: The ranks.
      buffer: This rank's buffer.
      parts: The part of each rank.
      buffers: The views that `shared_scatter` returned.
    """
    barrier = staging(comm).window.barrier
    own = parts[comm.rank]
    buffers[comm.rank][own] = buffer[own]  # no change if registered: the same memory
    barrier(comm.platform.pause)
    for peer, part in enumerate(parts):
        if peer != comm.rank:
            buffer[part] = buffers[peer][part]
    barrier(comm.platform.pause)


def registered_copy(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """Copy a plain buffer to registered memory, which later calls reuse."""
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

    A slot is reused after two barriers, when all ranks have read it.
    """
    stage = comm.cache.stage
    if stage is None:
        window = comm.platform.shared_window(SLOTS * STAGE)
        stage = comm.cache.stage = Stage(window, [[] for _ in range(SLOTS)])
    return stage


def next_slot(stage: Stage, like: np.ndarray) -> list[np.ndarray]:
    """Return the next slot of every rank, as views with length and dtype of `like`."""
    index = stage.next_slot
    stage.next_slot = (index + 1) % SLOTS
    views = stage.views[index]  # the views of the previous use often fit
    if not views or len(views[0]) != len(like) or views[0].dtype is not like.dtype:
        slot = slice(index * STAGE, index * STAGE + like.nbytes)
        views = [part[slot].view(like.dtype) for part in stage.window.parts]
        stage.views[index] = views
    return views
