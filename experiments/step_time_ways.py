"""What takes turns in step_time.py: flags in, calls that each do one step out.

Numbers are drawn, not read: a step's time does not depend on what they are. Yardsticks
are raced with the steps: a product of large matrices, and the sum of all gradients over
a mesh without the rest of the step.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import flags
import jax
import jax.numpy as jnp
import numpy as np
import vision
from jax.sharding import NamedSharding, PartitionSpec

from dml.data.minibatches import draws, take
from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.models.network import network
from dml.models.transformer import DTYPES, SIZES, Shape, transformer
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import (
    BadInput,
    Batch,
    CountedComm,
    Model,
    Params,
    Problem,
    Step,
    nothing,
)
from dml.update.dense import Optimizer, make
from dml.wire.mesh import devices
from dml.wire.messages.butterfly import butterfly_allreduce
from dml.wire.reducers.exact import exact

WARM = 2  # turns that compile
MINIBATCHES = 4  # that are drawn; then they come again
MASKED = 0.15  # of an example's tokens, in bert
CLASSES = 10
LEARNING = {"learning_rate": 1e-3, "decay": 0.1}  # by AdamW
LARGE = {"cpu": 2048, "gpu": 8192}  # rows of the yardstick's matrices
LEVELS = ["0", "1", "2", "3"]
Steps = Iterator[tuple[str, Iterator[Step]]]


class Task(NamedTuple):
    """A network and what it learns."""

    model: Model
    plain: Model  # without --remat: what an update needs is counted
    data: Batch
    unit: str
    units: int  # of an example
    shape: Any  # of a transformer, or of an image


class Setup(NamedTuple):
    """What every contestant trains, and how."""

    values: flags.FlagValues
    comm: CountedComm
    task: Task
    params: Params
    optimizer: Optimizer
    batches: Callable[[], Iterator[np.ndarray]]

    @property
    def problem(self) -> Problem:
        data = self.task.data
        return network(
            self.task.model,
            self.params,
            examples=len(jax.tree.leaves(data.targets)[0]),
            take=partial(take, data),
        )

    @property
    def ranks(self) -> dict[str, Any]:
        """Return the communicator, and a timer for one contestant."""
        return {"comm": self.comm, "timer": Timer(self.comm.Wtime)}

    def state(self) -> Any:
        """Return the optimizer's first state, another each time: updates take it."""
        return here(self.optimizer.init(self.params))


class Laps(NamedTuple):
    """What a contestant's turns took."""

    seconds: np.ndarray  # of the slowest rank, a turn
    phases: Mapping[str, float]  # medians of rank 0
    losses: tuple[float, float]  # of the first step and of the last, over all ranks
    measures: Mapping[str, float]


def text(values: flags.FlagValues, causal: bool) -> Task:
    """Return GPT or BERT and random tokens."""
    sizes = SIZES[values.model]
    if values.size not in sizes:
        raise BadInput(
            f"expected a --size of {', '.join(sizes)} with --model={values.model}, got "
            f"{values.size!r}; pass one of them"
        )
    shape = Shape(values.vocabulary, values.length, *sizes[values.size])
    rng = np.random.default_rng(values.seed)
    wide = (MINIBATCHES * values.batch, values.length)
    inputs, targets = rng.integers(values.vocabulary, size=(2, *wide), dtype=np.int32)
    if not causal:
        told = max(1, round(MASKED * values.length))
        places = np.broadcast_to(np.arange(values.length, dtype=np.int32), wide)
        positions = np.sort(rng.permuted(places, axis=1)[:, :told])
        targets = (positions, np.take_along_axis(targets, positions, axis=1))
    of = partial(transformer, shape, causal, values.dtype)
    data = Batch(inputs, targets)
    return Task(of(values.remat), of(), data, "tokens", values.length, shape)


def pictures(values: flags.FlagValues, maker: Callable[..., Model]) -> Task:
    """Return a network for images, and random ones."""
    rng, count = np.random.default_rng(values.seed), MINIBATCHES * values.batch
    shape = (values.image, values.image, 3)
    data = Batch(
        rng.standard_normal((count, *shape), np.float32),
        rng.integers(CLASSES, size=count, dtype=np.int32),
    )
    of = partial(maker, shape, CLASSES, dtype=values.dtype)
    return Task(of(remat=values.remat), of(), data, "images", 1, shape)


TASKS: dict[str, Callable[[flags.FlagValues], Task]] = {
    "gpt": partial(text, causal=True),
    "bert": partial(text, causal=False),
    **{name: partial(pictures, maker=one) for name, one in vision.MODELS.items()},
}


def setup(values: flags.FlagValues, comm: CountedComm, task: Task, key: Any) -> Setup:
    count, turns = MINIBATCHES * values.batch, WARM + values.rounds
    batches = partial(draws, count, values.batch, values.seed, turns * values.batch)
    optimizer = make("adamw", clip=values.clip, **LEARNING)
    params = here(task.model.init(key))
    return Setup(values, comm, task, params, optimizer, batches)


def here(tree: Any) -> Any:
    """Bind a tree to this process's first device, as what a step returns is.

    What is bound to none is another argument to JAX: all would be compiled twice.
    """
    return jax.device_put(tree, jax.local_devices()[0])


def alone(setup: Setup) -> Steps:
    """A rank's shard as if it were all: of many ranks, a step whose wire is free."""
    rank, size = setup.comm.rank, setup.comm.size
    mine = (shard(index, rank, size) for index in setup.batches())
    state = setup.state()
    yield (
        "serial",
        serial(setup.problem, mine, setup.optimizer, **setup.ranks, state=state),
    )


def by_messages(setup: Setup) -> Steps:
    values = setup.values
    reduce = flags.allreduce(values.allreduce, values, setup.comm.size)
    for nbytes in flags.numbers(values, "bucket_mb"):
        name = f"synchronous {nbytes:g} MB" if nbytes else "synchronous"
        steps = synchronous(
            setup.problem,
            setup.batches(),
            setup.optimizer,
            **setup.ranks,
            reducer=exact(reduce),
            bucket_mb=nbytes,
            state=setup.state(),
        )
        yield name, steps


def on_devices(setup: Setup) -> Steps:
    axes, params = devices.mesh(data=0), jax.device_get(setup.params)
    for level in flags.names(setup.values.zero, LEVELS, "zero"):
        optimizer, name = setup.optimizer, "mesh"
        if int(level):
            sliced = {"axis": "data", "like": setup.params}
            optimizer = make("adamw", clip=setup.values.clip, **LEARNING, **sliced)
            name = f"mesh zero={level}"
        # from the host: the mesh puts them on its devices, many processes' too
        problem = setup.problem._replace(params=params)
        own = {"axes": axes, "zero": int(level), "ahead": 0}
        yield name, mesh(problem, setup.batches(), optimizer, **setup.ranks, **own)


WAYS: dict[str, Callable[[Setup], Steps]] = {
    "serial": alone,
    "synchronous": by_messages,
    "mesh": on_devices,
}
PRODUCT, PSUM = "product", "psum"


def yardsticks(setup: Setup) -> dict[str, Callable[[], None]]:
    """Return calls that do a part of a step, by name."""
    rows, kind = LARGE[jax.default_backend()], DTYPES[setup.values.dtype]
    square_RxR = here(jnp.ones((rows, rows), kind))
    product = jax.jit(lambda one, other: one @ other)
    found = {PRODUCT: lambda: product(square_RxR, square_RxR).block_until_ready()}
    if len(jax.devices()) > 1 and "mesh" in flags.names(
        setup.values.strategies, WAYS, "strategies"
    ):
        found[PSUM] = psum(setup.params)
    return found


def psum(params: Params) -> Callable[[], None]:
    """Return a call that sums gradients as large as params over all devices."""
    axes, lies = devices.mesh(data=0), PartitionSpec("data")
    size = axes.shape["data"]

    @partial(jax.jit, out_shardings=NamedSharding(axes, lies))
    def zeros() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape)), like)

    def added(grads: Any) -> Any:
        return jax.lax.psum(jax.tree.map(lambda leaf: leaf[0], grads), "data")

    like = jax.eval_shape(lambda tree: tree, params)
    add = jax.jit(
        jax.shard_map(added, mesh=axes, in_specs=lies, out_specs=PartitionSpec())
    )
    grads = zeros()
    return lambda: jax.block_until_ready(add(grads))


def turns(
    comm: CountedComm, calls: Mapping[str, Callable[[], Any]], rounds: int, seed: int
) -> dict[str, Laps]:
    """Call all by turns, in another order each: so none always comes after the same."""
    names, rng = list(calls), np.random.default_rng(seed)
    seconds = np.zeros((len(names), rounds))
    steps: list[list[Step]] = [[] for _ in names]
    for number in range(-WARM, rounds):
        for row in rng.permutation(len(names)):
            comm.Barrier()
            start = comm.Wtime()
            found = calls[names[row]]()
            seconds[row, max(number, 0)] = comm.Wtime() - start
            if isinstance(found, Step):
                steps[row].append(
                    found._replace(params=nothing, state=nothing, memory=nothing)
                )
    ends = [[one[0].loss, one[-1].loss] if one else [0, 0] for one in steps]
    losses = np.array(ends) / comm.size
    butterfly_allreduce(comm, losses)
    butterfly_allreduce(comm, seconds, np.maximum)
    measures = [one[-1].measures if one else {} for one in steps]
    phases = [medians(some[WARM:]) for some in steps]
    found = zip(seconds, phases, map(tuple, losses), measures, strict=True)
    return dict(zip(names, itertools.starmap(Laps, found), strict=True))


def medians(steps: list[Step]) -> dict[str, float]:
    """Return seconds by phase."""
    phases = steps[0].seconds if steps else ()
    return {
        phase: float(np.median([step.seconds[phase] for step in steps]))
        for phase in phases
    }
