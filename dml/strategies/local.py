"""Local SGD (Stich 2019): ranks update alone, and average what they have now and then.

    rank 0  ─x─x─x─x┐       ┌x─x─x─x┐
    rank 1  ─x─x─x─x┼─ mean ┼x─x─x─x┼─ mean      x: an update by one's own shard only
    rank 2  ─x─x─x─x┘       └x─x─x─x┘            H = 4

Post-local (Lin 2020) averages after every update at first. Params and the optimizer's
moments are averaged alike, so that replicas are equal after it; with H = 1 and SGD that
is the synchronous way but for rounding.

Words an average: those of the all-reduce over params, moments and one loss.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import jax
import numpy as np

from dml.data.feed import Fed, feed
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.models.gradient import accumulated
from dml.strategies.serial import put, shares
from dml.types import (
    AllReduce,
    BadInput,
    Batch,
    CountedComm,
    Examples,
    Model,
    Params,
    Step,
)
from dml.update.dense import Optimizer, apply
from dml.wire.buffers import allocate, layout, pack, unpack


def local(
    model: Model,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
    every: int,
    after: int = 0,
    accumulate: int = 1,
    state: Any = None,
    ahead: int = 0,
) -> Iterator[Step]:
    """Train on comm's ranks, which average after `every` updates: a Step each time.

    The first `after` updates are averaged one by one. Params, data and batches are
    equal on all.
    """
    if every < 1 or after < 0:
        raise BadInput(
            f"expected averages after 1 update or more, got {every=}, {after=}; pass "
            "--local_every=<1 or more>"
        )
    params, state = put((params, optimizer.init(params) if state is None else state))
    flat = layout((params, moments(state), np.float32(0)))
    buffer = allocate(comm, flat.length, np.result_type(*flat.dtypes))
    ours = {"rank": comm.rank, "size": comm.size, "parts": accumulate}
    fed = feed(data, batches, partial(microbatches, **ours), put, ahead)
    number = 0
    for some in rounds(timer.waits("input", fed), every, after):
        lost, seen, total, sent = 0.0, 0.0, 0, comm.bytes_sent
        for count, parts in some:
            parts, weights = shares(parts, 1)  # numbers of examples
            here, number, total = sum(weights), number + 1, total + count
            if not here:
                continue
            with timer("gradient"):
                weights = [weight / here for weight in weights]
                loss, grads = jax.block_until_ready(
                    accumulated(model.loss, params, parts, weights)
                )
                comm.platform.work(here * comm.size / count)
            with timer("update"):
                new = apply(optimizer, grads, state, params)
                params, state = jax.block_until_ready(new)
            lost, seen = lost + float(jax.device_get(loss)) * here, seen + here
        with timer("wire"):
            mean = np.float32(lost / seen if seen else 0)
            pack(jax.device_get((params, moments(state), mean)), buffer, seen / total)
            allreduce(comm, buffer, op=np.add)
            params, averages, loss = unpack(buffer, flat)
            params, averages = put((params, averages))
            state = replaced(state, averages)
        words = (comm.bytes_sent - sent) // buffer.itemsize
        yield Step(
            *(number, float(loss), params, total, timer.lap(), words),
            state=partial(jax.device_get, state),
        )


def rounds(fed: Iterator[Fed], every: int, after: int) -> Iterator[Iterator[Fed]]:
    """Cut minibatches into the runs between two averages; the last may be shorter."""
    for number, first in enumerate(fed):
        length = 1 if number < after else every
        yield chain([first], islice(fed, length - 1))


def moments(state: Any) -> list[jax.Array]:
    """Return what of an optimizer's state can be averaged: all but its counts."""
    return [leaf for leaf in jax.tree.leaves(state) if _real(leaf)]


def replaced(state: Any, averages: Iterable[jax.Array]) -> Any:
    """Return the state with these moments."""
    new = iter(averages)
    return jax.tree.map(lambda leaf: next(new) if _real(leaf) else leaf, state)


def _real(leaf: Any) -> bool:
    return np.issubdtype(leaf.dtype, np.floating)
