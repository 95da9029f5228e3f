"""Strategies of step_time.py by the flags, and baselines.

Examples are random, since a step's time does not depend on them. Two baselines are
timed alternately with the strategies: a product of large matrices, and the sum of all
gradients over a mesh without the rest of the step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab import flags
from lab.progress import PROGRESS
import jax
import jax.numpy as jnp
import numpy as np
import vision
from jax.sharding import NamedSharding, PartitionSpec

from dml.data.minibatches import draws, take
from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.transformer import DTYPES, SIZES, Shape, transformer
from dml.runs.writers import Row
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.train import curve
from dml.types import (
    BadInput,
    Batch,
    CountedComm,
    Model,
    Params,
    Problem,
    Step,
    no_op,
)
from dml.update.dense import Optimizer, make
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.mesh import devices
from dml.wire.mesh.packed import sum_layers
from dml.wire.reducers.exact import exact

WARM = 2  # first repeats, which compile and are not timed
MINIBATCHES = 4  # number of distinct minibatches, repeated cyclically
MASKED = 0.15  # share of an example's tokens that BERT masks
CLASSES = 10
LEARNING = {"learning_rate": 1e-3, "decay": 0.1}  # arguments of AdamW
LARGE = {"cpu": 2048, "gpu": 8192}  # rows of the matrices of the baseline
LEVELS = ["0", "1", "2", "3"]
Steps = Iterator[tuple[str, Iterator[Step]]]


class Task(NamedTuple):
    """A network and its examples.

    model: the model that is trained.
    plain: the model without --remat, for counting operations.
    data: random examples.
    unit: name of the unit of speed: tokens or images.
    units: units in an example.
    shape: shape of the transformer or of an image.
    """

    model: Model
    plain: Model
    data: Batch
    unit: str
    units: int
    shape: Any


class Setup(NamedTuple):
    """Arguments of every strategy."""

    values: flags.FlagValues
    comm: CountedComm
    task: Task
    params: Params  # on the host
    optimizer: Optimizer
    batches: Callable[[], Iterator[np.ndarray]]

    @property
    def problem(self) -> Problem:
        data = self.task.data
        return model_problem(
            self.task.model,
            self.params,
            examples=len(jax.tree.leaves(data.targets)[0]),
            take=partial(take, data),
        )

    @property
    def ranks(self) -> dict[str, Any]:
        """Return the communicator, and a timer for one strategy."""
        return {"comm": self.comm, "timer": Timer(self.comm.Wtime)}


class Laps(NamedTuple):
    """Times of a strategy.

    seconds: seconds of the slowest rank in each repeat.
    phases: median seconds of each phase on this rank.
    losses: losses of the first and last step, means over all ranks.
    bytes_held: bytes of params and optimizer state on a device, if measured.
    """

    seconds: np.ndarray
    phases: Mapping[str, float]
    losses: tuple[float, float]
    bytes_held: float | None = None


def text_task(values: flags.FlagValues, causal: bool) -> Task:
    """Return GPT or BERT with random tokens."""
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
        masked = max(1, round(MASKED * values.length))
        places = np.broadcast_to(np.arange(values.length, dtype=np.int32), wide)
        positions = np.sort(rng.permuted(places, axis=1)[:, :masked])
        targets = (positions, np.take_along_axis(targets, positions, axis=1))
    model = partial(transformer, shape, causal, values.dtype)
    data = Batch(inputs, targets)
    return Task(model(values.remat), model(), data, "tokens", values.length, shape)


def image_task(values: flags.FlagValues, maker: Callable[..., Model]) -> Task:
    """Return a network for images with random images."""
    rng, count = np.random.default_rng(values.seed), MINIBATCHES * values.batch
    shape = (values.image, values.image, 3)
    data = Batch(
        rng.standard_normal((count, *shape), np.float32),
        rng.integers(CLASSES, size=count, dtype=np.int32),
    )
    model = partial(maker, shape, CLASSES, dtype=values.dtype)
    return Task(model(remat=values.remat), model(), data, "images", 1, shape)


TASKS: dict[str, Callable[[flags.FlagValues], Task]] = {
    "gpt": partial(text_task, causal=True),
    "bert": partial(text_task, causal=False),
    **{name: partial(image_task, maker=maker) for name, maker in vision.MODELS.items()},
}


def setup(values: flags.FlagValues, comm: CountedComm, task: Task, key: Any) -> Setup:
    """Return the arguments of the strategies; `key` initializes the parameters."""
    count, repeats = MINIBATCHES * values.batch, WARM + values.rounds
    batches = partial(draws, count, values.batch, values.seed, repeats * values.batch)
    optimizer = make("adamw", clip=values.clip, **LEARNING)
    params = jax.device_get(task.model.init(key))
    return Setup(values, comm, task, params, optimizer, batches)


def serial_shard(setup: Setup) -> Steps:
    """Yield serial training on this rank's shard: a step without communication."""
    rank, size = setup.comm.rank, setup.comm.size
    shards = (shard(index, rank, size) for index in setup.batches())
    yield "serial", serial(setup.problem, shards, setup.optimizer, **setup.ranks)


def synchronous_steps(setup: Setup) -> Steps:
    """Yield synchronous training for each bucket size."""
    values = setup.values
    reduce = flags.allreduce(values.allreduce, values, setup.comm.size)
    for megabytes in flags.numbers(values, "bucket_mb"):
        name = f"synchronous {megabytes:g} MB" if megabytes else "synchronous"
        own = {"reducer": exact(reduce), "bucket_mb": megabytes}
        arguments = (setup.problem, setup.batches(), setup.optimizer)
        yield name, synchronous(*arguments, **setup.ranks, **own)


def mesh_steps(setup: Setup) -> Steps:
    """Yield training on a mesh for each ZeRO level."""
    axes = devices.mesh(data=0)
    for level in flags.names(setup.values.zero, LEVELS, "zero"):
        optimizer, name = setup.optimizer, "mesh"
        if int(level):
            sliced = {"axis": "data", "like": setup.params}
            optimizer = make("adamw", clip=setup.values.clip, **LEARNING, **sliced)
            name = f"mesh zero={level}"
        own = {"axes": axes, "zero": int(level), "prefetch": 0}
        arguments = (setup.problem, setup.batches(), optimizer)
        yield name, mesh(*arguments, **setup.ranks, **own)


STRATEGIES: dict[str, Callable[[Setup], Steps]] = {
    "serial": serial_shard,
    "synchronous": synchronous_steps,
    "mesh": mesh_steps,
}
PRODUCT, PSUM = "product", "psum"


def baselines(setup: Setup) -> dict[str, Callable[[], None]]:
    """Return the baselines by name: PRODUCT, and PSUM with several devices."""
    rows, dtype = LARGE[jax.default_backend()], DTYPES[setup.values.dtype]
    square_RxR = jax.device_put(jnp.ones((rows, rows), dtype), jax.local_devices()[0])
    product = jax.jit(lambda left, right: left @ right)
    calls = {PRODUCT: lambda: product(square_RxR, square_RxR).block_until_ready()}
    if len(jax.devices()) > 1 and "mesh" in flags.names(
        setup.values.strategies, STRATEGIES, "strategies"
    ):
        calls[PSUM] = psum(setup.params)
    return calls


def psum(params: Params) -> Callable[[], None]:
    """Return a function that sums gradients as large as params over all devices."""
    axes, sharded = devices.mesh(data=0), PartitionSpec("data")
    size = axes.shape["data"]
    shapes = jax.eval_shape(lambda tree: tree, params)

    @partial(jax.jit, out_shardings=NamedSharding(axes, sharded))
    def zeros() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape)), shapes)

    def sum_shards(grads: Any) -> Any:
        return sum_layers(jax.tree.map(lambda leaf: leaf[0], grads))

    add = jax.jit(
        jax.shard_map(
            sum_shards, mesh=axes, in_specs=sharded, out_specs=PartitionSpec()
        )
    )
    grads = zeros()
    return lambda: jax.block_until_ready(add(grads))


def time_alternately(
    comm: CountedComm, calls: Mapping[str, Callable[[], Any]], repeats: int, seed: int
) -> dict[str, Laps]:
    """Time functions alternately; collective.

    Args:
        comm: communicator.
        calls: functions by name; a function does one step and may return a Step.
        repeats: number of timed calls of each function.
        seed: random seed of the order.

    Returns:
        Laps by name, equal on all ranks except for the phases.
    """
    rows = curve(alternate(comm, calls, repeats, seed)).rows
    rows_by_call = [[row for row in rows if row["strategy"] == name] for name in calls]
    seconds = np.array(
        [[row["duration"] for row in call_rows[WARM:]] for call_rows in rows_by_call]
    )
    losses = np.array(
        [[call_rows[0]["loss"], call_rows[-1]["loss"]] for call_rows in rows_by_call]
    )
    losses /= comm.size
    butterfly_allreduce(comm, losses)
    butterfly_allreduce(comm, seconds, np.maximum)
    return {
        name: Laps(
            seconds[index],
            medians(rows_by_call[index][WARM:]),
            tuple(losses[index]),
            rows_by_call[index][-1].get("bytes_held"),
        )
        for index, name in enumerate(calls)
    }


def alternate(
    comm: CountedComm, calls: Mapping[str, Callable[[], Any]], repeats: int, seed: int
) -> Iterator[Step]:
    """Yield the Steps of all functions; each repeat has another random order."""
    names, rng = list(calls), np.random.default_rng(seed)
    no_step = Step(0, 0.0, no_op, 0, {}, 0)
    rounds = [f"round {number}" for number in range(WARM + repeats)]
    for _ in PROGRESS.each(rounds):
        for index in rng.permutation(len(names)):
            comm.Barrier()
            start = comm.Wtime()
            result = calls[names[index]]()
            measures = {"strategy": names[index], "duration": comm.Wtime() - start}
            step = result if isinstance(result, Step) else no_step
            # Without parameters, which would stay in memory until the next repeat.
            yield step._replace(
                params=no_op,
                state=no_op,
                memory=no_op,
                measures={**step.measures, **measures},
            )


def medians(rows: Sequence[Row]) -> dict[str, float]:
    """Return the median seconds of each phase."""
    keys = [key for key in rows[0] if key.endswith("_seconds")]
    return {
        key.removesuffix("_seconds"): float(np.median([row[key] for row in rows]))
        for key in keys
    }
