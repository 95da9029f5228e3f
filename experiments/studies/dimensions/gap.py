"""Rounds, words and seconds until a gap of 1e-4, by method, on virtual ranks.

All methods minimise one objective: logistic regression with an L2 norm. The gap is
(F - F*)/F* with the optimum F* of L-BFGS in float64. A round is an all-reduce.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dml import sim
from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.models.linear.problem import Descent, linear
from dml.strategies.linear.lbfgs import lbfgs
from dml.strategies.linear.prox_cocoa import prox_cocoa
from dml.strategies.linear.s_step import s_step
from dml.strategies.local import local
from dml.strategies.operation import operation
from dml.strategies.synchronous import synchronous
from dml.types import Comm, Problem, Step
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE, broadcast
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from studies.dimensions.steps import Machine

GAP, ALGORITHM = 1e-4, "halving_doubling"
EXAMPLES, FEATURES, L2 = 256, 2048, 3e-3
BATCH, RATE, STEPS, EVERY = 16, 2.0, 2, 4
UPDATES, ITERATIONS = 4000, 400  # after which a method is abandoned

Row = dict[str, Any]


class Method(NamedTuple):
    """A strategy, its columns or rows, and its options.

    Attributes:
      strategy: Function of the strategy.
      own: All-reduce -> options.
      update: Update of the parameters.
      stride: Number of Steps between two evaluations.
      iterations: Whether a Step is a pass over all examples.
    """

    strategy: Callable[..., Any]
    own: Callable[[Any], Mapping[str, Any]]
    update: Any = None
    stride: int = 1
    iterations: bool = False


def by_rows(allreduce: Any, **own: Any) -> Mapping[str, Any]:
    return {"reducer": exact(allreduce), **own}


def by_columns(allreduce: Any, **own: Any) -> Mapping[str, Any]:
    return {"allreduce": allreduce, **own}


SGD = make("sgd", RATE)
stepping = partial(by_columns, rate=RATE)
METHODS = {
    "L-BFGS, columns": Method(lbfgs, by_columns, iterations=True),
    "ProxCoCoA+, columns": Method(prox_cocoa, by_columns, iterations=True),
    "SGD, columns": Method(s_step, stepping, stride=STEPS),
    "s-step, columns": Method(s_step, partial(stepping, steps=STEPS)),
    "SGD, rows": Method(synchronous, by_rows, SGD, STEPS),
    "averaging, rows": Method(local, partial(by_rows, every=EVERY), SGD),
}


BEST = METHODS["L-BFGS, columns"]


@cache
def data() -> tuple[np.ndarray, np.ndarray]:
    """Return features of unequal sizes, and classes."""
    draws = np.random.default_rng(0)
    sizes = draws.permutation((1.0 + np.arange(FEATURES)) ** -0.5)
    x = draws.standard_normal((EXAMPLES, FEATURES)) * sizes / np.linalg.norm(sizes)
    noise = 0.3 * draws.standard_normal(EXAMPLES)
    y = np.where(3 * x @ draws.standard_normal(FEATURES) + noise > 0, 1.0, -1.0)
    return x.astype(np.float32), y


@cache
def reference() -> tuple[Problem, float]:
    """Return the problem in float64, and its least objective."""
    problem = linear(*data(), "logistic", L2)
    (steps,) = sim.run(lambda comm: list(trained(comm, problem, BEST)), 1)
    return problem, min(step.measures["objective"] for step in steps)


def trained(comm: Comm, problem: Problem, method: Method) -> Iterator[Step]:
    """Return the Steps of a method on a rank."""
    items = islice(minibatches(EXAMPLES, BATCH, 0), UPDATES)
    steps: Iterator[Step] = method.strategy(
        problem,
        range(ITERATIONS) if method.iterations else items,
        method.update,
        comm=Metered(comm),
        timer=Timer(comm.Wtime),
        **method.own(ALLREDUCE[ALGORITHM]),
    )
    return steps


def points(name: str, size: int, machine: Machine) -> list[Row]:
    """Return the gap after each evaluation, until it is reached, on virtual ranks."""
    exact_problem, best = reference()

    def program(comm: Comm) -> list[Row]:
        work = machine.processor.work(comm)
        problem = linear(*data(), "logistic", L2, np.float32, work)
        method, rounds, found = METHODS[name], [0], list[Row]()
        counted = method._replace(own=lambda _: method.own(counting(rounds)))
        gap, seconds, words = np.zeros(1), 0.0, 0
        for number, step in enumerate(trained(comm, problem, counted), 1):
            seconds += sum(step.seconds.values())
            words += step.words_sent
            if number % method.stride:
                continue
            params = step.params()
            if comm.rank == 0:
                value = exact_problem.evaluate(np.asarray(params, float))["objective"]
                gap[0] = value / best - 1
            row = {"method": name, "p": size, "rounds": rounds[0], "words": words}
            broadcast(comm, gap)
            found.append(row | {"seconds": seconds, "gap": float(gap[0])})
            if gap[0] <= GAP:
                break
        return found

    return sim.run(program, size, machine.network)[0]


def counting(rounds: list[int]) -> Callable[..., None]:
    """Return an all-reduce that counts its calls."""

    def allreduce(comm: Comm, buffer: np.ndarray, op: Any = np.add) -> None:
        rounds[0] += 1
        ALLREDUCE[ALGORITHM](comm, buffer, op)

    return allreduce


def difference() -> float:
    """Return the largest relative difference of s-step from `operation`, in float64.

    Both do 256 steps; s = 64.
    """
    problem = linear(*data(), "logistic", L2)
    options = {
        operation: {"update": partial(Descent, rate=RATE), "batch": BATCH},
        s_step: {"rate": RATE, "steps": 64},
    }

    def program(comm: Comm, strategy: Callable[..., Any]) -> np.ndarray | None:
        items = islice(minibatches(EXAMPLES, BATCH, 0), 256)
        given = {"update": None, "allreduce": ALLREDUCE["ring"]} | options[strategy]
        timer = Timer(comm.Wtime)
        made = strategy(problem, items, comm=Metered(comm), timer=timer, **given)
        params: np.ndarray | None = list(made)[-1].params()
        return params

    first, second = (
        sim.run(partial(program, strategy=strategy), 4)[0] for strategy in options
    )
    return float(np.abs(first - second).max() / np.abs(first).max())
