"""Training of a model that is larger than device memory (GeePS, Cui 2016).

    device memory   the buffers of the current operations, and of the next ones
        ▲ │         fetch and write back by a plan, while operations are computed
    host memory     params, state of the optimizer, and saved activations

The operations of an iteration are recorded once, and all moves are planned. A minibatch
of another size is recorded anew. The result has the bits of `synchronous` with
--bucket_mb=1, for any capacity. On several ranks the gradient of each layer is reduced
over ranks before its update: words as `synchronous`.

Cost: at most `device_mb` of device memory. The bytes moved per update are those of the
plan: none after the first update if all buffers fit.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, split_shards
from dml.strategies.offload.exchange import Exchange
from dml.strategies.offload.memory import DeviceMemory
from dml.strategies.offload.program import Shapes, Turn
from dml.strategies.offload.recording import record
from dml.strategies.offload.runner import Runner
from dml.types import (
    BadInput,
    CountedComm,
    Model,
    Params,
    Problem,
    Reducer,
    Step,
    identity,
    no_op,
)
from dml.types.ranges import Number, OneOf, Size, checked
from dml.update.layers import join_states, separable, split_state
from dml.wire.plans.offloading.offload import RULES

MB = 1e6
UNLIMITED = 1 << 62  # bytes


@checked
def offload(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    device_mb: Number = 0.0,
    rule: Annotated[str, OneOf(tuple(RULES))] = "belady",
    ahead: bool = True,
    reducer: Reducer | None = None,
    prefetch: Size = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    Args:
      problem: Problem whose model has layers, equal on all ranks. Its params should be
        in host memory; arrays of the caller on the device are not counted.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer that updates each layer separately, without clipping.
      comm: Ranks.
      timer: Measures the phases.
      device_mb: Device memory for training in MB; 0: unlimited.
      rule: Rule of evictions, a key of `wire.plans.offloading.offload.RULES`.
      ahead: Whether buffers are fetched before they are needed.
      reducer: Computes the mean of gradients; None on one rank.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer from the Step to resume from; None initializes it.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    model = check_problem(problem, update, comm, reducer)
    states = split_state(update, problem.params, state)
    exchange = Exchange(comm, problem, reducer, memory) if reducer else None
    device = make_memory(comm, device_mb, problem.params, states)
    recorder = partial(record, model, update, exchanged=exchange is not None)
    params_shapes, state_shapes = jax.eval_shape(
        identity, (dict(problem.params), states)
    )
    shapes = Shapes(params_shapes, state_shapes, None)
    runner = Runner(device, recorder, shapes, rule, ahead)
    del states
    split = split_shards(comm, comm.size, 1)
    minibatches = feed(problem.take, batches, split, prefetch=prefetch)
    try:
        for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
            (part,), sent = parts, comm.bytes_sent
            share = part.examples / count if part else 0.0
            turn = Turn(part and part.batch, device.put, exchange, share, [])
            comm.platform.work(share * comm.size)
            measures = runner.run(turn, timer)
            yield Step(
                number=number,
                loss=exchange.loss if exchange else turn.losses[0],
                params=partial(collect, device, "params", problem.params),
                examples=count,
                seconds=timer.lap(),
                words_sent=(comm.bytes_sent - sent) // 4,
                measures=measures,
                state=partial(collect_state, device, update, problem.params),
                memory=exchange.collect if exchange else no_op,
                replicas=True,
            )
    finally:
        device.close()


def check_problem(
    problem: Problem, update: Update, comm: CountedComm, reducer: Reducer | None
) -> Model:
    """Return the model; raise BadInput unless it can be trained layer by layer."""
    if not problem.model or not problem.model.layers:
        raise BadInput(
            "expected a problem with model.layers for --strategy=offload, got one "
            "without; pass --strategy=serial"
        )
    if comm.size > 1 and reducer is None:
        raise BadInput(
            f"expected a reducer on {comm.size} ranks, got None; pass "
            "reducer=exact(ring_allreduce)"
        )
    if not separable(update, problem.params):
        raise BadInput(
            "expected an optimizer that updates each layer separately with "
            "--strategy=offload, got one that clips the norm of all gradients; pass "
            "--clip=0"
        )
    return problem.model


def make_memory(
    comm: CountedComm, device_mb: float, params: Params, states: Mapping[str, Any]
) -> DeviceMemory:
    """Return device memory, with params and state in host memory.

    Args:
      comm: Ranks; virtual ranks share a thread, so that no thread moves buffers.
      device_mb: Capacity in MB; 0: unlimited.
      params: Params by name.
      states: State of the optimizer by name.
    """
    capacity = round(device_mb * MB) if device_mb else UNLIMITED
    device = DeviceMemory(capacity, background=not comm.platform.virtual)
    for name, tree in params.items():
        device.store_on_host(f"params/{name}", tree)
        device.store_on_host(f"state/{name}", states[name])
    return device


def collect(device: DeviceMemory, kind: str, names: Iterable[str]) -> dict[str, Any]:
    """Return params or states by name as NumPy arrays."""
    return {name: device.collect(f"{kind}/{name}") for name in names}


def collect_state(device: DeviceMemory, update: Update, params: Params) -> Any:
    """Return the state of the optimizer for all params."""
    return join_states(update, params, collect(device, "state", params))
