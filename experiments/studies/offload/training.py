"""Trainings on this machine with device memory of several capacities."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.data.minibatches import draws
from dml.evaluation.scores import digest
from dml.metrics.timer import Timer
from dml.runs.writers import Row
from dml.strategies.offload.offload import MB, offload
from dml.strategies.synchronous import synchronous
from dml.types import Comm, Problem, Step
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from dml.wire.plans.offloading.offload import RULES, Iteration, demand, moved
from dml.wire.reducers.exact import exact
from studies.offload.workload import Workload, adam, capacities

WARM_UP = 2  # steps whose seconds are not counted
RANKS = 2  # virtual ranks of the last rows


class Trained(NamedTuple):
    """The result of a training.

    Attributes:
      steps: Steps of rank 0.
      sha256: Digest of the parameters at the end.
    """

    steps: list[Step]
    sha256: str


class Trainings:
    """Trainings of one problem, which differ in device memory only.

    Args:
      workload: The GPT.
      steps: Number of updates.
      seed: Random seed.
    """

    def __init__(self, workload: Workload, steps: int, seed: int) -> None:
        self.workload, self.count, self.seed = workload, steps, seed
        self.model, self.update = workload.model(), adam()
        self.problem: Problem = workload.problem(self.model, seed)

    def iteration(self, ranks: int) -> Iteration:
        """Return the recorded iteration of a rank."""
        return self.workload.program(self.model, self.update, ranks).iteration

    def run(self, strategy: Any, comm: Comm, **own: Any) -> Trained:
        """Train on this rank."""
        examples, batch = self.problem.examples, self.workload.batch
        batches = draws(examples, batch, self.seed, self.count * batch, 0)
        ranks = {"comm": Metered(comm), "timer": Timer()}
        steps = list(strategy(self.problem, batches, self.update, **ranks, **own))
        return Trained(steps, digest(steps[-1].params()))


def rows(
    workload: Workload, fractions: list[float], steps: int, seed: int
) -> Iterator[Row]:
    """Yield a row per training, the first without offloading.

    Args:
      workload: The GPT.
      fractions: Capacities, relative to the memory in which everything fits.
      steps: Number of updates.
      seed: Random seed.
    """
    trainings = Trainings(workload, steps, seed)
    iteration = trainings.iteration(1)
    all_reduce = {"reducer": exact(ALLREDUCE["star"])}
    plain = partial(trainings.run, synchronous, bucket_mb=1.0, **all_reduce)
    yield row("synchronous", 1, plain(world())) | no_plan(iteration)
    for capacity in capacities(iteration, fractions).values():
        for rule in RULES:
            own = {"device_mb": capacity / MB, "rule": rule}
            own["ahead"] = rule != "on_demand"
            trained = trainings.run(offload, world(), **own)
            yield row(rule, 1, trained) | planned(iteration, capacity, rule, steps)
    iteration = trainings.iteration(RANKS)
    yield row("synchronous", RANKS, sim.run(plain, RANKS)[0]) | no_plan(iteration)
    own = {"device_mb": iteration.least / MB, **all_reduce}
    trained = sim.run(partial(trainings.run, offload, **own), RANKS)[0]
    yield row("belady", RANKS, trained) | planned(
        iteration, iteration.least, "belady", steps
    )


def row(method: str, ranks: int, trained: Trained) -> dict[str, Any]:
    """Return the counted and measured columns of a training."""
    measures = [step.measures for step in trained.steps]
    seconds = [sum(step.seconds.values()) for step in trained.steps[WARM_UP:]]
    kinds = ("fetched_bytes", "written_back_bytes")
    counted = [sum(each.get(kind, 0) for kind in kinds) for each in measures]
    return {
        "method": method,
        "ranks": ranks,
        "steps": len(trained.steps),
        "counted_bytes": int(sum(counted)),
        "peak_bytes": int(measures[-1].get("device_peak_bytes", 0)),
        "orders": len({each.get("access_order") for each in measures}),
        "seconds": float(np.median(seconds)) if seconds else None,
        "loss": trained.steps[-1].loss,
        "sha256": trained.sha256,
    }


def no_plan(iteration: Iteration) -> dict[str, Any]:
    """Return the columns of a training without a plan."""
    capacity = iteration.most
    return {"capacity": capacity, "fraction": 1.0, "predicted_bytes": 0}


def planned(
    iteration: Iteration, capacity: int, rule: str, steps: int
) -> dict[str, Any]:
    """Return the columns predicted by the plan for a number of updates.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      rule: Rule of evictions.
      steps: Number of updates.
    """
    needed: Sequence[Any] = list(
        islice(demand(iteration, capacity, rule), steps * len(iteration.accesses))
    )
    return {
        "capacity": capacity,
        "fraction": capacity / iteration.most,
        "predicted_bytes": sum(moved(each.moves) for each in needed),
    }
