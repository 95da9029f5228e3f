"""Synchronous GloVe in JAX: minibatches and columns are divided over a mesh of devices.

          dim ─►   columns   columns
    batch   ┌─────────┬─────────┐   psum over dim: the products of a device's records
      │     │ records │ records │   psum over batch: the gradients of its columns, dense
      ▼     ├─────────┼─────────┤
            │ records │ records │   Biases are replicated. One call of XLA computes a
            └─────────┴─────────┘   group of minibatches, on CPUs and on GPUs.

The words of the psums are sent by XLA and not counted in Steps.

`dml.strategies.mesh` divides minibatches only, and computes one minibatch per call of
XLA. Its calls took longer than those of groups:

    words    records per minibatch   devices      one minibatch   group of minibatches
     2,000     1,024                 1 (1 core)   0.20 s          0.08 s
    20,000    16,384                 2            0.83 s          0.59 s

AdaGrad computes exact square roots here and approximate ones in `serial`, so the bits
of the results differ; test_mesh compares both.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.data.text.tiles import Tiles
from dml.metrics.timer import Timer
from dml.models.networks.glove import Records, log_errors
from dml.strategies.glove.problem import take
from dml.types import BadInput, Comm, Embeddings, Problem, Step, identity
from dml.types.ranges import Large, checked
from dml.update.rows import pack

GROUP = 64  # largest number of minibatches in a call
SPLIT, REPLICATED = PartitionSpec(None, "dim"), PartitionSpec()
State = Any  # Embeddings on devices
_SPECS: Any = (SPLIT, REPLICATED, SPLIT, REPLICATED)
SPECS = Embeddings(*_SPECS)
RECORDS = PartitionSpec(None, "batch")


@checked
def mesh(
    problem: Problem,
    batches: Iterable[Any],
    update: float,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    batch: Large,
) -> Iterator[Step]:
    """Train as `serial` does, on the devices of all ranks; yield a Step an epoch.

    Args:
      problem: Problem of GloVe, equal on all ranks.
      batches: One item per epoch, which is a pass over all records in their order.
      update: Learning rate of AdaGrad.
      comm: Ranks, all in one run of JAX.
      timer: Measures the phases.
      axes: Mesh with the axes batch and dim.
      batch: Greatest number of records in a minibatch.
    """
    tiles = problem.kernel.data
    check(problem.products.dim, comm, axes)
    count = len(tiles.logs)
    batch, train = min(batch, count), trainer(axes)
    total = -(-count // batch)
    group = -(-total // -(-total // GROUP))  # equal groups compile once
    place = functools.partial(split, axes)
    state: State = jax.tree.map(place, problem.products.state, SPECS)
    for epoch, _ in enumerate(batches, 1):
        losses: list[jax.Array] = []
        with timer("update"):
            for first in range(0, total, group):
                records = feed(tiles, first * batch, (group, batch), axes)
                state, loss = train(state, records, np.float32(update))
                jax.block_until_ready(losses[-1:])  # prepare one group in advance
                losses.append(loss)
            mean = float(np.concatenate(losses).sum(dtype=np.float64)) / count
        yield Step(
            number=epoch * total,
            loss=mean,
            params=functools.partial(collect, comm, axes, state),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
            epoch=epoch,
        )


def check(dim: int, comm: Comm, axes: Mesh) -> None:
    """Raise BadInput if `dim` is indivisible, or ranks are not processes of JAX."""
    if dim % axes.shape["dim"]:
        raise BadInput(
            f"expected dimensions that {axes.shape['dim']} devices can share equally, "
            f"got {dim}; pass --dim=<a multiple of {axes.shape['dim']}>"
        )
    if jax.process_count() != comm.size:
        raise BadInput(
            f"expected one run of JAX on {comm.size} ranks, got one on "
            f"{jax.process_count()}; call dml.wire.mesh.devices.start(comm) first, and "
            "omit --simulate"
        )


@functools.cache
def trainer(axes: Mesh) -> Callable[..., tuple[State, jax.Array]]:
    """Compile (state, a group of minibatches, rate) -> (state, their losses)."""

    def train(state, records, rate):
        return jax.lax.scan(
            lambda state, minibatch: descend(state, minibatch, rate), state, records
        )

    sharded = jax.shard_map(
        train,
        mesh=axes,
        in_specs=(SPECS, Records(RECORDS, RECORDS, RECORDS, RECORDS), REPLICATED),
        out_specs=(SPECS, REPLICATED),
    )
    return jax.jit(sharded, donate_argnums=0)


def descend(state: State, records: Records, rate: jax.Array) -> tuple[State, jax.Array]:
    """Update a device's columns by a minibatch; return the summed loss."""
    vectors_TxD, biases, squares_TxD, bias_squares = state
    words, contexts, _, weights = records
    errors = log_errors(state, records, lambda products: jax.lax.psum(products, "dim"))
    slopes = weights * errors
    slopes_Bx1 = slopes[:, None]
    grads_TxD = jnp.zeros_like(vectors_TxD)
    grads_TxD = grads_TxD.at[words].add(slopes_Bx1 * vectors_TxD[contexts])
    grads_TxD = grads_TxD.at[contexts].add(slopes_Bx1 * vectors_TxD[words])
    # GPUs add in any order: the biases of two devices may differ in their last bits
    grads = jnp.zeros_like(biases).at[words].add(slopes).at[contexts].add(slopes)
    loss = 0.5 * (slopes * errors).sum()
    grads_TxD, grads, loss = jax.lax.psum((grads_TxD, grads, loss), "batch")
    moved = adagrad(vectors_TxD, squares_TxD, rate * grads_TxD)
    biases, bias_squares = adagrad(biases, bias_squares, grads)
    return type(state)(moved[0], biases, moved[1], bias_squares), loss


def adagrad(
    params: jax.Array, squares: jax.Array, steps: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Update every element as update.rows does; a step of 0 changes no bit."""
    squares = squares + steps * steps
    return params - steps * jax.lax.rsqrt(squares), squares


def split(axes: Mesh, array: np.ndarray, spec: PartitionSpec) -> jax.Array:
    """Return a sharded copy of an array that is equal on all ranks."""
    return jax.make_array_from_callback(
        array.shape, NamedSharding(axes, spec), array.__getitem__
    )


def feed(tiles: Tiles, start: int, shape: tuple[int, int], axes: Mesh) -> Records:
    """Return the next minibatches, divided among the devices.

    Records of weight 0 pad each minibatch to a multiple of the number of devices, and
    fill the minibatches after the last one of the epoch.

    Args:
      tiles: All records.
      start: First record.
      shape: Number of minibatches, and of records in each.
      axes: Mesh with the axes batch and dim.
    """
    group, batch = shape
    size = axes.shape["batch"]
    wide = -(-batch // size) * size

    @functools.cache  # devices that differ in dim have the same records
    def part(first: int, stop: int) -> Records:
        records = Records(
            *np.zeros((2, group, stop - first), np.int32),
            *np.zeros((2, group, stop - first), np.float32),
        )
        for n, left in enumerate(range(start, start + group * batch, batch)):
            right = min(left + min(stop, batch), len(tiles.logs))
            if left + first < right:
                taken = take(tiles, range(left + first, right))
                for out, values in zip(records, taken, strict=True):
                    out[n, : len(values)] = values
        return records

    def field(n: int) -> jax.Array:
        def of_device(index: Any) -> np.ndarray:
            return part(*index[1].indices(wide)[:2])[n]

        sharding = NamedSharding(axes, RECORDS)
        return jax.make_array_from_callback((group, wide), sharding, of_device)

    return Records(*map(field, range(len(Records._fields))))


def collect(comm: Comm, axes: Mesh, state: State) -> np.ndarray | None:
    """Return the table on rank 0, None elsewhere; collective."""
    gathered = jax.jit(identity, out_shardings=NamedSharding(axes, REPLICATED))(state)
    if comm.rank:
        return None
    return pack(Embeddings(*(np.asarray(n.addressable_data(0)) for n in gathered)))
