"""Synchronous GloVe in JAX: minibatches and columns split over a mesh of devices.

          dim ─►   columns   columns
    batch   ┌─────────┬─────────┐   psum over dim: the products of a device's records
      │     │ records │ records │   psum over batch: the gradients of its columns, dense
      ▼     ├─────────┼─────────┤
            │ records │ records │   Biases are on all devices. One call of XLA does a
            └─────────┴─────────┘   group of minibatches, on CPUs and GPUs alike.

Words: none by our messages; what XLA moves for its psums is not counted.

This program is GloVe's own: columns are split over `dim`, biases are not, and one call
takes a group of minibatches. `dml.strategies.mesh` splits minibatches only. AdaGrad
takes exact roots here, so bits are not those of `serial`; test_mesh compares both.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.models.glove import Records
from dml.strategies.glove.problem import take
from dml.types import BadInput, Comm, Embeddings, Problem, Step
from dml.update.rows import pack

GROUP = 64  # minibatches in a call, at most: so that to start it costs nothing
SPLIT = PartitionSpec(None, "dim")
COPIED = PartitionSpec()
State = tuple[jax.Array, ...]  # the fields of Embeddings, on devices
STATE = (SPLIT, COPIED, SPLIT, COPIED)
FED = PartitionSpec(None, "batch")


def mesh(
    problem: Problem,
    batches: Iterable[Any],
    update: float,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    batch: int,
) -> Iterator[Step]:
    """Train as serial does, on the devices of all ranks; yield a Step an epoch.

    problem: of GloVe, equal on all ranks.
    batches: an item for each epoch, which is a pass over all records in their order.
    update: the rate of AdaGrad.
    comm: the ranks, all in one run of JAX.
    timer: measures the phases.
    axes: the axes batch and dim.
    batch: records of a minibatch, at most.
    """
    state, tiles = problem.products.state, problem.kernel.data
    check(problem.products.dim, comm, axes)
    count = len(tiles.logs)
    batch, train = min(batch, count), trainer(axes)
    total = -(-count // batch)
    group = -(-total // -(-total // GROUP))  # groups of one size: one compilation
    now = tuple(split(n, axes, spec) for n, spec in zip(state, STATE, strict=True))
    losses: list[jax.Array]
    for epoch, _ in enumerate(batches, 1):
        losses = []
        with timer("update"):
            for first in range(0, total, group):
                records = feed(tiles, first * batch, (group, batch), axes)
                now, lost = train(now, records, np.float32(update))
                jax.block_until_ready(losses[-1:])  # feed one group ahead, no more
                losses.append(lost)
            loss = float(np.concatenate(losses).sum(dtype=np.float64)) / count
        yield Step(
            number=epoch * total,
            loss=loss,
            params=functools.partial(collect, comm, axes, now),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
            epoch=epoch,
        )


def check(dim: int, comm: Comm, axes: Mesh) -> None:
    """Raise where devices cannot share the columns, or ranks are not in the mesh."""
    if dim % axes.shape["dim"]:
        raise BadInput(
            f"expected dimensions that {axes.shape['dim']} devices can share equally, "
            f"got {dim}; pass --dim=<a multiple of {axes.shape['dim']}>"
        )
    if jax.process_count() != comm.size:
        raise BadInput(
            f"expected one run of JAX on {comm.size} ranks, got one on "
            f"{jax.process_count()}; start(comm) first, and drop --simulate"
        )


@functools.cache
def trainer(axes: Mesh) -> Callable[..., tuple[State, jax.Array]]:
    """Compile (state, a group of minibatches, rate) -> (state, their losses)."""

    def train(state, records, rate):
        return jax.lax.scan(
            lambda state, one: descend(state, one, rate), state, records
        )

    sharded = jax.shard_map(
        train,
        mesh=axes,
        in_specs=(STATE, Records(FED, FED, FED, FED), COPIED),
        out_specs=(STATE, COPIED),
    )
    return jax.jit(sharded, donate_argnums=0)


def descend(state: State, records: Records, rate: jax.Array) -> tuple[State, jax.Array]:
    """Take a step on a minibatch: what one device does; return its loss, summed."""
    words, contexts, logs, weights = records
    vectors_TxD, biases, squares_TxD, bias_squares = state
    x_BxD, y_BxD = vectors_TxD[words], vectors_TxD[contexts]
    products = jax.lax.psum((x_BxD * y_BxD).sum(axis=1), "dim")
    misses = products + biases[words] + biases[contexts] - logs
    to_biases = weights * misses
    to_products = to_biases[:, None]
    grads_TxD = jnp.zeros_like(vectors_TxD).at[words].add(to_products * y_BxD)
    grads_TxD = grads_TxD.at[contexts].add(to_products * x_BxD)
    # GPUs add in any order: the biases of two devices may differ in their last bits
    grads = jnp.zeros_like(biases).at[words].add(to_biases).at[contexts].add(to_biases)
    lost = 0.5 * (to_biases * misses).sum()
    grads_TxD, grads, lost = jax.lax.psum((grads_TxD, grads, lost), "batch")
    vectors_TxD, squares_TxD = adagrad(vectors_TxD, squares_TxD, rate * grads_TxD)
    biases, bias_squares = adagrad(biases, bias_squares, grads)
    return (vectors_TxD, biases, squares_TxD, bias_squares), lost


def adagrad(
    numbers: jax.Array, squares: jax.Array, steps: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Update every number, as update.rows does; a step of 0 changes no bit."""
    squares = squares + steps * steps
    return numbers - steps * jax.lax.rsqrt(squares), squares


def split(numbers: np.ndarray, axes: Mesh, spec: PartitionSpec) -> jax.Array:
    """Give each device its part of an array that all ranks have."""
    return jax.make_array_from_callback(
        numbers.shape, NamedSharding(axes, spec), lambda index: numbers[index]
    )


def feed(tiles: Tiles, start: int, shape: tuple[int, int], axes: Mesh) -> Records:
    """Give each device its records of the next minibatches, one a row of shape.

    Rows are as long as the devices can share; what has no record has weight 0.
    """
    size = axes.shape["batch"]
    wide = shape[0], -(-shape[1] // size) * size

    @functools.cache  # devices that differ in dim have the same records
    def columns(first: int, stop: int) -> Records:
        return cut(tiles, start, shape, range(first, stop))

    def field(n: int) -> jax.Array:
        def of_device(index: Any) -> np.ndarray:
            return columns(*index[1].indices(wide[1])[:2])[n]

        return jax.make_array_from_callback(wide, NamedSharding(axes, FED), of_device)

    return Records(*map(field, range(len(Records._fields))))


def cut(tiles: Tiles, start: int, shape: tuple[int, int], columns: range) -> Records:
    """Return some columns of the next minibatches, one a row; zeros after their end."""
    group, batch = shape
    wide = group, len(columns)
    found = Records(*np.zeros((2, *wide), np.int32), *np.zeros((2, *wide), np.float32))
    for n, left in enumerate(range(start, start + group * batch, batch)):
        right = min(left + min(columns.stop, batch), len(tiles.logs))
        if left + columns.start < right:
            some = take(tiles, range(left + columns.start, right))
            for out, values in zip(found, some, strict=True):
                out[n, : len(values)] = values
    return found


def collect(comm: Comm, axes: Mesh, state: State) -> np.ndarray | None:
    """Return the table on rank 0, None elsewhere; collective."""
    whole = copier(axes)(state)
    if comm.rank:
        return None
    parts = (np.asarray(numbers.addressable_data(0)) for numbers in whole)
    return pack(Embeddings(*parts))


@functools.cache
def copier(axes: Mesh) -> Callable[[State], State]:
    """Compile what puts all columns on every device."""
    return jax.jit(lambda state: state, out_shardings=NamedSharding(axes, COPIED))
