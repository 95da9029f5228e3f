"""Trainings of shuffling.py: virtual ranks that exchange examples between epochs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lab import flags
import numpy as np

from dml.case import Case, measure
from dml.data.shards import bounds, shard
from dml.data.skew import by_label, random_order
from dml.metrics.timer import Timer
from dml.problems import given, network
from dml.strategies import strategy
from dml.strategies.exchange import exchanged_minibatches
from dml.task import Task
from dml.types import BadInput, Batch, CountedComm, Problem, Step
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered

Row = dict[str, Any]
WIDTHS = (64,)


class Setting(NamedTuple):
    """The strategy, kind of shards, exchanged fraction and seed of a training."""

    strategy: str
    shards: str
    fraction: float
    seed: int


# (labels, seed) -> order of the examples, of which a shard is a contiguous part
SHARDS: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "iid": lambda labels, seed: random_order(len(labels), seed),
    "sorted": lambda labels, seed: by_label(labels, random_order(len(labels), seed)),
}
STRATEGIES = "synchronous", "local"


def make_task(values: flags.FlagValues) -> Task:
    """Return the network and the images of the flags."""
    task = network("mlp", values.data, *WIDTHS)
    count = len(task.training.targets)
    if count < values.ranks:
        raise BadInput(
            f"expected an example or more for each of {values.ranks} ranks, got "
            f"{count}; pass --ranks=<at most {count}>"
        )
    flags.seeds(values)  # refused before the first training
    return task


def train(task: Task, setting: Setting, values: flags.FlagValues) -> Row:
    """Train with a setting on virtual ranks; each has a shard.

    `updates` are those of a rank; `exchanged` and `reduced` are the bytes of examples
    and of gradients or parameters that all ranks sent.
    """
    order = SHARDS[setting.shards](task.training.targets, setting.seed)
    data = Batch(*(array[order] for array in task.training))
    own = {"data": data, "setting": setting, "values": values}
    entry = given(task.problem(setting.seed), (), make("sgd", values.lr))
    measured = measure(Case(entry, on_shards, own, ranks=values.ranks))
    last = [rank.rows[-1] for rank in measured]
    exchanged = sum(row["exchanged_bytes"] for row in last)
    return {
        "accuracy": measured[0].evaluation["accuracy"],
        "updates": last[0]["step"],
        "exchanged": exchanged,
        "reduced": sum(rank.bytes for rank in measured) - exchanged,
    }


def on_shards(
    problem: Problem,
    batches: Any,
    update: Any,
    *,
    comm: CountedComm,
    timer: Timer,
    data: Batch,
    setting: Setting,
    values: flags.FlagValues,
) -> Iterator[Step]:
    """Train on a shard of the examples, which ranks exchange before each epoch.

    Args:
      problem: The problem; minibatches are read from the shard of this rank.
      batches: Ignored: the minibatches depend on the exchanges.
      update: Update of the parameters.
      comm: Ranks.
      timer: Measures the phases.
      data: Examples of all shards, in the order of the ranks.
      setting: Strategy, shards, fraction and seed.
      values: The flags.
    """
    count, examples = len(data.targets), Metered(comm)
    own = Batch(*(shard(array, comm.rank, comm.size).copy() for array in data))
    first, _ = bounds(count, comm.rank, comm.size)

    def take(indices: np.ndarray) -> Batch:
        return Batch(*(array[indices - first] for array in own))

    for step in strategy(setting.strategy, problem)(
        problem._replace(take=take),
        exchanged_minibatches(
            examples,
            own,
            count=count,
            batch=values.batch,
            fraction=setting.fraction,
            seed=setting.seed,
            epochs=values.epochs,
        ),
        update,
        comm=comm,
        timer=timer,
        reducer=flags.reducer(values.reduce, ALLREDUCE["ring"]),
        **({"every": values.period} if setting.strategy == "local" else {}),
    ):
        sent = {"exchanged_bytes": examples.bytes_sent}
        yield step._replace(measures={**step.measures, **sent})
