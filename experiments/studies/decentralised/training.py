"""Trainings of decentralised.py: virtual ranks with skewed shards."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab import flags
from lab.compiling import sgd
import numpy as np

from dml import sim
from dml.case import Case, mean, measure, steps
from dml.data.skew import parse, skewed_draws, skewed_shards
from dml.evaluation.scores import evaluate
from dml.problems import given
from dml.strategies.decentral.replicas import distance
from dml.task import Task
from dml.types import CountedComm, Params, Step
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.buffers import layout, unpack
from dml.wire.reducers.exact import exact

Row = dict[str, Any]
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


class Setting(NamedTuple):
    """Strategy, its topology, skew of the shards, and learning rate of a training."""

    strategy: str
    topology: str = ""
    skew: str = ""
    lr: float = 0.0


def refuse(
    task: Task,
    strategies: Sequence[str],
    skews: Sequence[str],
    values: flags.FlagValues,
) -> None:
    """Raise BadInput for skews and topologies that do not fit, before any training."""
    seed, *_ = flags.seeds(values)
    for skew in skews:
        parse(skew)
    for name in strategies:
        for topology in topologies(name, values):
            training = case(task, Setting(name, topology, skews[0]), seed, values)
            sim.run(partial(steps, training), values.ranks)


def case(task: Task, setting: Setting, seed: int, values: flags.FlagValues) -> Case:
    """Return a training on skewed shards.

    Args:
      task: The network and its images.
      setting: Strategy, topology, skew and learning rate.
      seed: Seed of the start value, of shards and of minibatches.
      values: The flags.
    """
    shards = skewed_shards(task.training.targets, values.ranks, setting.skew, seed)
    batch = values.batch * values.ranks
    minibatches = list(skewed_draws(shards, batch, seed, batch * values.steps))
    own = STRATEGIES[setting.strategy].options(values)
    if setting.topology:
        own["topology"] = setting.topology
    entry = given(task.problem(seed), minibatches, sgd(setting.lr))
    return Case(entry, setting.strategy, own, ranks=values.ranks, network=NETWORK)


def train(task: Task, setting: Setting, seed: int, values: flags.FlagValues) -> Row:
    """Train on virtual ranks with skewed shards; return means over ranks.

    `accuracy` is that of the mean of all replicas, `each` the mean accuracy of the
    replicas, and `consensus` their mean squared distance to their mean. `seconds` are
    virtual seconds of all exchanges on NETWORK.
    """

    def measures(comm: CountedComm, last: Step) -> Row:
        params = last.params()
        of_mean = 0.0 if comm.rank else accuracy(task, params)
        if last.replicas:  # all ranks have equal ones
            return {"accuracy": of_mean, "consensus": 0.0}
        vector: np.ndarray = last.memory().vector
        own = accuracy(task, unpack(vector, layout(params)))
        return {"accuracy": of_mean, "each": own, "consensus": distance(comm, vector)}

    measured = measure(case(task, setting, seed, values), evaluate=measures)
    first = dict(measured[0].evaluation)
    each = [rank.evaluation["each"] for rank in measured if "each" in first]
    return first | {
        "each": float(np.mean(each or first["accuracy"])),
        "bytes_sent": mean([rank.bytes for rank in measured]),
        "seconds": max(rank.seconds for rank in measured),
    }


def accuracy(task: Task, params: Params) -> float:
    """Return the accuracy on held-out examples."""
    return float(evaluate(task.model, task.held_out, params)["accuracy"])
