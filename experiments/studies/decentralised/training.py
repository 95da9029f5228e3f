"""Trainings of decentralised.py: virtual ranks with skewed shards."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab import flags
from lab.compiling import sgd
import jax
import numpy as np

from dml import sim
from dml.data.images.datasets import images
from dml.data.minibatches import take
from dml.data.skew import parse, skewed_draws, skewed_shards
from dml.evaluation.scores import evaluate
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.strategies import strategy
from dml.strategies.decentral.replicas import distance
from dml.types import Batch, CountedComm, Model, Params, Problem, Step
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout, unpack
from dml.wire.reducers.exact import exact

WIDTHS = (32,)
NETWORK = sim.Uniform(alpha=1e-3, beta=8e-9)  # 1 ms, 1 Gb/s


class Strategy(NamedTuple):
    """The flags of a strategy.

    Attributes:
      options: Function of the flags that returns the options, except the topology.
      topologies: Name of the flag of the topologies; empty: no topology is an option.
    """

    options: Callable[[flags.FlagValues], dict[str, Any]] = lambda values: {}
    topologies: str = ""


def summed(values: flags.FlagValues) -> dict[str, Any]:
    return {"reducer": exact(ALLREDUCE["ring"])}


ON_GRAPH, ON_TREE = Strategy(topologies="topologies"), Strategy(topologies="trees")
STRATEGIES: Mapping[str, Strategy] = {
    "synchronous": Strategy(summed),
    "local": Strategy(lambda values: summed(values) | {"every": values.period}),
    "gossip": ON_GRAPH,
    "push_sum": ON_GRAPH,
    "relay": ON_TREE,
    "d2": ON_GRAPH,
    "gradient_tracking": ON_GRAPH,
    "moshpit": Strategy(),
    "easgd": Strategy(lambda values: {"allreduce": ALLREDUCE["ring"]}),
    "diloco": Strategy(lambda values: summed(values) | {"outer_every": values.period}),
}


def topologies(name: str, values: flags.FlagValues) -> list[str]:
    """Return the topologies of a strategy; an empty text if it has no such option."""
    flag = STRATEGIES[name].topologies
    return values[flag].value.split(",") if flag else [""]


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


class Setting(NamedTuple):
    """Strategy, its topology, skew of the shards, and learning rate of a training."""

    strategy: str
    topology: str = ""
    skew: str = ""
    lr: float = 0.0


class Trained(NamedTuple):
    """The result of a training.

    Attributes:
      accuracy: Accuracy of the mean of all replicas.
      each: Mean accuracy of the replicas.
      consensus: Mean squared distance of replicas to their mean.
      nbytes: Bytes sent by a rank, mean over ranks.
      seconds: Virtual seconds of all exchanges on NETWORK.
    """

    accuracy: float
    each: float
    consensus: float
    nbytes: float
    seconds: float


def make_task(values: flags.FlagValues) -> Task:
    """Return the task of the flags."""
    training, held_out = images(values.data)
    classes = int(training.targets.max()) + 1
    model = mlp(training.inputs.shape[1:], classes, widths=WIDTHS)
    seeds = flags.seeds(values)
    starts = {seed: model.init(jax.random.key(seed)) for seed in seeds}
    return Task(model, starts, training, held_out)


def refuse(
    task: Task,
    strategies: Sequence[str],
    skews: Sequence[str],
    values: flags.FlagValues,
) -> None:
    """Raise BadInput for skews and topologies that do not fit, before any training."""
    for skew in skews:
        parse(skew)
    problem = problem_of(task, next(iter(task.starts)))

    def program(comm: CountedComm) -> None:
        for name in strategies:
            for topology in topologies(name, values):
                start(Setting(name, topology), problem, iter(()), comm, values)

    sim.run(lambda comm: program(Metered(comm)), values.ranks)


def problem_of(task: Task, seed: int) -> Problem:
    """Return the problem of all ranks."""
    return model_problem(
        task.model,
        task.starts[seed],
        examples=len(task.training.targets),
        take=partial(take, task.training),
    )


def start(
    setting: Setting,
    problem: Problem,
    batches: Any,
    comm: CountedComm,
    values: flags.FlagValues,
) -> Any:
    """Return the Steps of a strategy.

    Args:
      setting: Strategy, topology and learning rate.
      problem: The problem.
      batches: Indices of each minibatch.
      comm: The ranks.
      values: The flags.
    """
    own = STRATEGIES[setting.strategy].options(values)
    if setting.topology:
        own["topology"] = setting.topology
    return strategy(setting.strategy, problem)(
        problem,
        batches,
        sgd(setting.lr),
        comm=comm,
        timer=Timer(comm.Wtime),
        **own,
    )


def train(task: Task, setting: Setting, seed: int, values: flags.FlagValues) -> Trained:
    """Train on virtual ranks with skewed shards.

    Args:
      task: The task.
      setting: Strategy, skew and learning rate.
      seed: Seed of the start value, of shards and of minibatches.
      values: The flags.
    """
    problem = problem_of(task, seed)
    shards = skewed_shards(task.training.targets, values.ranks, setting.skew, seed)
    batch = values.batch * values.ranks
    minibatches = list(skewed_draws(shards, batch, seed, batch * values.steps))
    like = layout(problem.params)

    def program(comm: CountedComm) -> tuple[float, ...]:
        comm = Metered(comm)
        (last,) = deque(start(setting, problem, minibatches, comm, values), 1)
        seconds = comm.Wtime()
        mean = last.params()
        own = replica(last)
        consensus = 0.0 if own is None else distance(comm, own)
        each = mean if own is None else unpack(own, like)
        of_mean = accuracy(task, mean) if comm.rank == 0 else 0.0
        of_each = of_mean if own is None else accuracy(task, each)
        return of_mean, of_each, consensus, comm.bytes_sent, seconds

    results = np.array(sim.run(program, values.ranks, NETWORK))
    each = results[:, 1].mean() if results[1, 1] else results[0, 1]
    nbytes, seconds = results[:, 3].mean(), results[:, 4].max()
    return Trained(results[0, 0], each, results[0, 2], nbytes, seconds)


def replica(last: Step) -> np.ndarray | None:
    """Return this rank's packed parameters; None if all ranks have equal ones."""
    if last.replicas:
        return None
    vector: np.ndarray = last.memory().vector
    return vector


def accuracy(task: Task, params: Params) -> float:
    """Return the accuracy on held-out examples."""
    return float(evaluate(task.model, task.held_out, params)["accuracy"])
