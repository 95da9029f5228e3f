"""Training of one network that the devices of a mesh compute together.

                     ┌ device 0: its shards ┐
    minibatch  ──→   │ device 1: its shards │  ──→  loss, updated shards
    on every device  └ device 2: its shards ┘

The problem's gradient is a shard_map that states what each device computes and sends,
or a function that XLA partitions. Gradient and update are one program. A Step measures
the bytes that a device sends, by kind of collective.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding

from dml.metrics.timer import Timer
from dml.strategies.mesh import local
from dml.types import Batch, Comm, Params, Problem, Step, identity
from dml.types.ranges import checked
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import REPLICATED
from dml.wire.mesh.traffic import collectives, ring_bytes


@checked
def sharded(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    specs: Any = REPLICATED,
) -> Iterator[Step]:
    """Train on the devices of a mesh; yield a Step after every update.

    Args:
      problem: Problem to train; JAX must be able to trace its gradient.
      batches: Indices of each minibatch, equal in all processes.
      update: optax optimizer.
      comm: Ranks, one JAX process each.
      timer: Measures the phases; `gradient` includes the update, but no compilation.
      axes: The mesh.
      specs: PartitionSpecs of params, a prefix of their tree; replicated by default.
    """

    def step(params: Params, state: Any, batch: Batch) -> tuple[Params, Any, Any]:
        loss, grads = problem.gradient(params, batch)
        updates, state = update.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = placed(jax.device_get(problem.params), axes, specs)
    state = jax.tree.map(
        lambda leaf: leaf if np.ndim(leaf) else placed(np.asarray(leaf), axes),
        update.init(params),
    )
    programs: dict[int, tuple[Any, dict[str, float]]] = {}  # by number of examples
    for number, index in enumerate(timer.waits("input", batches), 1):
        with timer("input"):
            batch = placed(problem.take(index), axes)
        if len(index) not in programs:
            compiled = jax.jit(step).lower(params, state, batch).compile()
            programs[len(index)] = compiled, bytes_sent(compiled)
        program, measures = programs[len(index)]
        with timer("gradient"):
            params, state, loss = jax.block_until_ready(program(params, state, batch))
            comm.platform.work(1)
        yield Step(
            number=number,
            loss=float(local(loss)),
            params=partial(collected, params, axes),
            examples=len(index),
            seconds=timer.lap(),
            words_sent=0,
            measures=measures,
            state=partial(collected, state, axes),
            replicas=True,
        )


def placed(tree: Any, axes: Mesh, specs: Any = REPLICATED) -> Any:
    """Place a tree, equal in all processes, on the devices by its PartitionSpecs."""
    shardings = jax.tree.map(lambda spec: NamedSharding(axes, spec), specs)
    return jax.jit(identity, out_shardings=shardings)(tree)


def collected(tree: Any, axes: Mesh) -> Any:
    """Return full arrays on the host of every process; collective."""
    replicated = placed(tree, axes)
    return jax.tree.map(lambda leaf: np.asarray(local(leaf)), replicated)


def bytes_sent(program: jax.stages.Compiled) -> dict[str, float]:
    """Return the bytes that a device sends in one run, by kind of collective."""
    nbytes: dict[str, float] = {}
    for collective in collectives(program.as_text() or ""):
        name = f"{collective.kind}_bytes"
        nbytes[name] = nbytes.get(name, 0.0) + ring_bytes(collective) * collective.times
    return nbytes
