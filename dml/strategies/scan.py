"""Training on one rank as a single compiled program.

    Step             1                   2
    update       0    1    2         3    4    5       a loop over updates in a loop
    minibatch   KxN  KxN  KxN       KxN  KxN  KxN      over Steps

A minibatch may consist of the shards of K simulated workers with N examples each. The
mean of the workers' losses has the gradient that an all-reduce would compute, and batch
statistics are those of each worker's shard (Goyal 2017, section 3).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jax.tree_util import Partial

from dml.metrics.timer import Timer
from dml.types import BadInput, Batch, Comm, Params, Problem, Step
from dml.types.ranges import Count, Every, checked
from dml.update.dense import Optimizer


@checked
def scan(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer | Callable[[Any], Optimizer],
    *,
    comm: Comm,
    timer: Timer,
    every: Every = 1,
    workers: Count = 1,
    rates: np.ndarray | None = None,
    measure: Partial | None = None,
) -> Iterator[Step]:
    """Train on one rank; yield a Step after every `every` updates.

    All Steps are yielded after the last update. The first has the seconds of all.

    Args:
      problem: Problem to train, with a model; all its examples are on the device.
      batches: Indices of each minibatch, all of one length.
      update: optax optimizer; with rates, schedule -> optax optimizer.
      comm: Communicator of one rank.
      timer: Measures the phases; compilation is not measured.
      every: Number of updates in a Step.
      workers: Number of equal parts of a minibatch, K.
      rates: Learning rate of each update, an argument of the program: trainings with
        different rates share one compilation.
      measure: params -> measures by name, compiled; called after each Step's updates.
    """
    model = problem.model
    assert model
    data = problem.take(np.arange(problem.examples))
    parts = list(batches)
    if len(set(map(len, parts))) != 1 or len(parts) % every:
        raise BadInput(
            f"expected minibatches of one length, a multiple of {every}, got "
            f"{len(parts)} of {sorted(set(map(len, parts)))}; pass another --batch"
        )
    if len(parts[0]) % workers:
        raise BadInput(
            f"expected minibatches of a multiple of {workers} examples, one part for "
            f"each worker, got {len(parts[0])}; pass another --batch or workers"
        )
    indices = np.stack(parts) % problem.examples
    shape = (-1, every, workers, indices.shape[1] // workers)
    indices_SxRxKxN = indices.astype(np.int32).reshape(shape)
    arguments = jax.device_put((problem.params, indices_SxRxKxN, rates, data))
    # JAX caches the compiled program by shapes
    program = _training.lower(model.loss, update, *arguments).compile()
    with timer("gradient"):
        params, losses = jax.block_until_ready(program(*arguments))
        comm.platform.work(len(indices))
    measured = jax.device_get(_measure_all(measure, params)) if measure else {}
    for number, loss in enumerate(np.asarray(losses)):
        yield Step(
            number=(number + 1) * every,
            loss=float(loss),
            params=partial(_params_of_step, params, number),
            examples=every * indices.shape[1],
            seconds=timer.lap(),
            words_sent=0,
            measures={name: float(series[number]) for name, series in measured.items()},
            replicas=True,
        )


@partial(jax.jit, static_argnums=(0, 1))
def _training(
    loss: Any, update: Any, params: Params, indices: Any, rates: Any, data: Batch
) -> tuple[Params, Any]:
    """Return the params after each Step, stacked, and the mean losses of each."""
    optimizer = update if rates is None else update(lambda count: rates[count])

    def mean(params: Params, batches: Batch) -> Any:
        return jax.vmap(loss, (None, 0))(params, batches).mean()

    def step(carry: Any, indices: Any) -> Any:
        params, state = carry
        part = jax.tree.map(lambda leaf: leaf[indices], data)
        value, grads = jax.value_and_grad(mean)(params, part)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    def updates_of_step(carry: Any, indices: Any) -> Any:
        carry, values = jax.lax.scan(step, carry, indices)
        return carry, (carry[0], values.mean())

    return jax.lax.scan(updates_of_step, (params, optimizer.init(params)), indices)[1]


@jax.jit
def _measure_all(measure: Partial, params: Params) -> Any:
    return jax.lax.map(measure, params)


def _params_of_step(stacked: Params, number: int) -> Params:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], stacked)
