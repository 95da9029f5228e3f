"""Trainings of shuffling.py: virtual ranks that exchange examples between epochs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab import flags
import jax
import numpy as np

from dml import sim
from dml.data.images.datasets import images
from dml.data.shards import bounds, shard
from dml.data.skew import by_label, random_order
from dml.evaluation.scores import evaluate
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.strategies.exchange import exchanged_minibatches
from dml.strategies.local import local
from dml.strategies.synchronous import synchronous
from dml.train import curve
from dml.types import BadInput, Batch, CountedComm, Model, Params, Problem
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered

WIDTHS = (64,)


class Task(NamedTuple):
    """A network and the images that it classifies.

    Attributes:
      model: The network.
      starts: Start values of the parameters, by seed.
      training: Examples of all shards.
      held_out: Examples of the evaluation.
    """

    model: Model
    starts: Mapping[int, Params]
    training: Batch
    held_out: Batch

    @property
    def model_bytes(self) -> int:
        """Number of bytes of the parameters."""
        leaves = jax.tree.leaves(next(iter(self.starts.values())))
        return sum(leaf.nbytes for leaf in leaves)


class Setting(NamedTuple):
    """The strategy, kind of shards, exchanged fraction and seed of a training."""

    strategy: str
    shards: str
    fraction: float
    seed: int


class Trained(NamedTuple):
    """The result of a training.

    Attributes:
      accuracy: Accuracy on held-out examples.
      updates: Number of updates of a rank.
      exchanged: Bytes of examples that each rank sent.
      reduced: Bytes of gradients or parameters that each rank sent.
    """

    accuracy: float
    updates: int
    exchanged: Sequence[int]
    reduced: Sequence[int]


# (labels, seed) -> order of the examples, of which a shard is a contiguous part
SHARDS: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "iid": lambda labels, seed: random_order(len(labels), seed),
    "sorted": lambda labels, seed: by_label(labels, random_order(len(labels), seed)),
}
STRATEGIES = {"synchronous": synchronous, "local": local}


def make_task(values: flags.FlagValues) -> Task:
    """Return the task of the flags."""
    training, held_out = images(values.data)
    if len(training.targets) < values.ranks:
        raise BadInput(
            f"expected an example or more for each of {values.ranks} ranks, got "
            f"{len(training.targets)}; pass --ranks=<at most {len(training.targets)}>"
        )
    classes = int(training.targets.max()) + 1
    model = mlp(training.inputs.shape[1:], classes, widths=WIDTHS)
    seeds = flags.seeds(values)
    starts = {seed: model.init(jax.random.key(seed)) for seed in seeds}
    return Task(model, starts, training, held_out)


def train(task: Task, setting: Setting, values: flags.FlagValues) -> Trained:
    """Train with a setting on virtual ranks; each has a shard."""
    order = SHARDS[setting.shards](task.training.targets, setting.seed)
    data = [array[order] for array in task.training]

    def program(comm: CountedComm) -> tuple[dict[str, Any], int, int]:
        own = Batch(*(shard(array, comm.rank, comm.size).copy() for array in data))
        examples, gradients = Metered(comm), Metered(comm)  # counted apart
        batches = exchanged_minibatches(
            examples,
            own,
            count=len(order),
            batch=values.batch,
            fraction=setting.fraction,
            seed=setting.seed,
            epochs=values.epochs,
        )
        steps = STRATEGIES[setting.strategy](
            problem(task, setting.seed, own, comm),
            batches,
            make("sgd", values.lr),
            comm=gradients,
            timer=Timer(comm.Wtime),
            reducer=flags.reducer(values.reduce, ALLREDUCE["ring"]),
            **({"every": values.period} if setting.strategy == "local" else {}),
        )
        measures = no_measures if comm.rank else partial(measure, task)
        summary = curve(steps, measures, finite=False).summary
        return summary, examples.bytes_sent, gradients.bytes_sent

    summaries, exchanged, reduced = zip(*sim.run(program, values.ranks), strict=True)
    return Trained(summaries[0]["accuracy"], summaries[0]["steps"], exchanged, reduced)


def problem(task: Task, seed: int, own: Batch, comm: CountedComm) -> Problem:
    """Return the problem of a rank, which reads examples of its shard only."""
    count = len(task.training.targets)
    first, _ = bounds(count, comm.rank, comm.size)

    def take(indices: np.ndarray) -> Batch:
        return Batch(*(array[indices - first] for array in own))

    return model_problem(task.model, task.starts[seed], examples=count, take=take)


def measure(task: Task, params: Params) -> dict[str, Any]:
    """Return the accuracy on held-out examples."""
    return evaluate(task.model, task.held_out, params)


def no_measures(params: Params) -> dict[str, Any]:
    return {}
