"""One network in two ways, on one device and cut over a mesh, trained alike.

A Way, params, an optimizer and minibatches in; a Lap of every step out: its loss, its
seconds, and params that both ways can read.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from dml.data.minibatches import take
from dml.types import BadInput, Batch, Grads, Params
from dml.update.dense import Optimizer

WHOLE = PartitionSpec()


class Way(NamedTuple):
    """What computes a gradient, and where."""

    gradient: Callable[[Params, Batch], tuple[Any, Grads]]
    axes: Mesh
    specs: Any  # how params lie; of a part of their tree, one for all


class Lap(NamedTuple):
    """One step."""

    loss: float
    seconds: float
    params: Callable[[], Params]  # whole, on the host; collective
    program: Callable[[], str]  # what XLA has compiled


class Ran(NamedTuple):
    """All steps."""

    losses: Sequence[float]
    seconds: Sequence[float]
    last: Lap

    @property
    def per_step(self) -> float:
        """Return the median of the seconds a step."""
        return float(np.median(self.seconds))


def alone(loss: Callable[[Params, Batch], Any]) -> Way:
    """Return the way of this process's first device."""
    return Way(jax.value_and_grad(loss), axes("one", jax.local_devices()[:1], 1), WHOLE)


def axes(name: str, devices: Sequence[jax.Device], size: int) -> Mesh:
    """Return the first so many devices as a mesh of one axis."""
    spare = jax.process_count() == 1  # else a process would stand outside
    if len(devices) < size or (len(devices) > size and not spare):
        raise BadInput(
            f"expected {size} devices for the axis {name}, got {len(devices)}; pass "
            f"--simulate={size}, or start {size} ranks"
        )
    return Mesh(np.array(devices[:size]), (name,), axis_types=(AxisType.Auto,))


def trained(
    way: Way,
    params: Params,
    optimizer: Optimizer,
    data: Batch,
    batches: Iterable[np.ndarray],
) -> Iterator[Lap]:
    """Train; minibatches must be of equal size. What is compiled does not count."""

    def step(params: Params, state: Any, batch: Batch) -> tuple[Params, Any, Any]:
        loss, grads = way.gradient(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    now = laid(way.axes, way.specs, jax.device_get(params))
    state = jax.tree.map(
        lambda leaf: leaf if np.ndim(leaf) else laid(way.axes, WHOLE, np.asarray(leaf)),
        optimizer.init(now),
    )
    call = None
    for index in batches:
        batch = laid(way.axes, WHOLE, take(data, index))
        if call is None:
            call = jax.jit(step).lower(now, state, batch).compile()
        start = time.perf_counter()
        now, state, loss = jax.block_until_ready(call(now, state, batch))
        seconds = time.perf_counter() - start
        params_now = partial(collected, way.axes, now)
        yield Lap(float(local(loss)), seconds, params_now, call.as_text)


def laid(axes: Mesh, specs: Any, tree: Any) -> Any:
    """Put a tree that every process has on the devices, as specs say."""
    lies = jax.tree.map(lambda spec: NamedSharding(axes, spec), specs)
    return jax.jit(lambda tree: tree, out_shardings=lies)(tree)


def collected(axes: Mesh, params: Params) -> Params:
    """Return whole params on the host; collective."""
    return jax.tree.map(local, laid(axes, WHOLE, params))


def local(leaf: jax.Array) -> np.ndarray:
    return np.asarray(leaf.addressable_data(0))


def ran(laps: Iterable[Lap], seen: Callable[[int, Lap], object] | None = None) -> Ran:
    """Go through all steps, each of which is seen by its number; keep the last."""
    losses, seconds = [], []
    for number, lap in enumerate(laps, 1):
        losses.append(lap.loss)
        seconds.append(lap.seconds)
        if seen:
            seen(number, lap)
    return Ran(losses, seconds, lap)


def apart(one: Ran, other: Ran, steps: int | None = None) -> float:
    """Return the largest difference of two curves of losses, in the first steps."""
    gaps = np.subtract(one.losses, other.losses)[:steps]
    return float(np.max(np.abs(gaps)))
