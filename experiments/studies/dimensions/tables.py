"""The tables of dimensions.py, on virtual ranks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.models.linear.problem import Columns, linear
from dml.runs.writers import Row
from dml.wire.costs.linear import best_rows
from studies.dimensions import gap
from studies.dimensions.data import columns, in_memory, signs
from studies.dimensions.steps import (
    ITEMSIZE,
    Machine,
    Processor,
    Task,
    Technique,
    fitted_limit,
    limit,
    predicted,
    simulated,
)

FREE = Processor(np.inf, np.inf)  # computation takes no time
FACTORS = 2.0 ** np.arange(-1, 1.5, 0.5)  # of the best s b by the formula
CANDIDATES = "butterfly", "halving_doubling"  # of which the faster one is taken
DATA = {"dense": False, "sparse": True}


class Arguments(NamedTuple):
    """The arguments of all tables.

    Attributes:
      examples, features: Size of the table of features.
      nonzeros: Number of nonzero features of an example of sparse data.
      techniques: Ways to step.
      sizes: Numbers of ranks.
      machine: Processor and network.
      alphas: Seconds of a message, of the table of best sizes.
      words_size: Number of ranks of the table of best sizes.
      gap_size: Number of ranks of the table of gaps.
      seed: Random seed of the features.
    """

    examples: int
    features: int
    nonzeros: int
    techniques: Sequence[Technique]
    sizes: Sequence[int]
    machine: Machine
    alphas: Sequence[float]
    words_size: int
    gap_size: int
    seed: int

    def task(self, data: str) -> Task:
        """Return the linear model of dense or sparse data."""
        nonzeros = self.nonzeros if DATA[data] else 0
        made = columns(self.examples, self.features, nonzeros, self.seed)
        targets = signs(self.examples, self.seed)
        problem = linear(in_memory(made), targets, dtype=np.float32)
        return Task(problem, nonzeros)


Tables = Mapping[str, Sequence[Row]]


def speedups(data: str, arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield seconds and speed-up of a step by number of ranks, with each technique."""
    task, first = arguments.task(data), dict[str, float]()
    for size in arguments.sizes:
        row: dict[str, Any] = {"p": size, "features": arguments.features}
        for technique in arguments.techniques:
            name, row_of = technique.key, dict[str, float | None]()
            if size % technique.groups:
                row_of = dict.fromkeys(("seconds", "predicted", "words", "speedup"))
            else:
                took, words = simulated(task, technique, size, arguments.machine)
                row_of |= {"seconds": took, "words": words}
                row_of["predicted"] = predicted(
                    task, technique, size, arguments.machine
                )
                alone = Technique(technique.batch, technique.steps)
                if name not in first:
                    first[name], _ = simulated(task, alone, 1, arguments.machine)
                row_of["speedup"] = first[name] / took
            row |= {f"{key}_{name}": value for key, value in row_of.items()}
        block = task.problem.products.block(0, size)
        params = (block.features + 1) * ITEMSIZE
        yield row | {"rank_bytes": block.nbytes + params}


def limits(data: str, arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield what each technique moves, and p* without groups, two ways."""
    task = arguments.task(data)
    rows = [row for row in tables[data] if row["p"] & (row["p"] - 1) == 0]
    for technique in arguments.techniques:
        shown = [row for row in rows if row[f"seconds_{technique.key}"] is not None]
        if len(shown) < 3:
            continue
        sizes = [row["p"] for row in shown]
        took = [row[f"seconds_{technique.key}"] for row in shown]
        flat = technique.groups == 1
        yield {
            "data": data,
            "technique": str(technique),
            "rounds": (1 if flat else 2) / technique.steps,
            "words": shown[-1][f"words_{technique.key}"],
            "formula": limit(task, technique, arguments.machine) if flat else None,
            "simulated": fitted_limit(sizes, took) if flat else None,
            "fastest": sizes[int(np.argmin(took))],
            "speedup": max(row[f"speedup_{technique.key}"] for row in shown),
        }


def best_sizes(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the s with the least time of messages per step, for b = 1."""
    size = arguments.words_size
    draws = np.random.default_rng(arguments.seed)
    for alpha in arguments.alphas:
        rates = arguments.machine.rates._replace(alpha=alpha)
        machine = Machine(FREE, rates)
        formula = best_rows(alpha, rates.beta, ITEMSIZE, size)
        steps = sorted({1, *(max(1, round(formula * f)) for f in FACTORS)})
        x = draws.standard_normal((max(steps), size), np.float32)
        whole = Columns(*x.shape, lambda part, x=x: x[:, part])
        problem = linear(whole, signs(len(x), 0), dtype=np.float32)
        took = {
            count: min(
                simulated(Task(problem, 0), Technique(1, count), size, machine, name)[0]
                for name in CANDIDATES
            )
            for count in steps
        }
        best = min(took, key=took.__getitem__)
        yield {
            "alpha": alpha,
            "p": size,
            "formula": formula,
            "simulated": best,
            "seconds_1": took[1],
            "seconds": took[best],
            "gain": took[1] / took[best],
        }


def gaps(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield the gap of each method after each evaluation."""
    for name in gap.METHODS:
        yield from gap.points(name, arguments.gap_size, arguments.machine)


def reached(arguments: Arguments, tables: Tables) -> Iterator[Row]:
    """Yield rounds, words and seconds of each method until the gap is reached."""
    for name in gap.METHODS:
        last = [row for row in tables["gaps"] if row["method"] == name][-1]
        yield dict(last) | {"reached": last["gap"] <= gap.GAP}


TABLES: dict[str, Callable[[Arguments, Tables], Iterator[Row]]] = {
    "dense": lambda *given: speedups("dense", *given),
    "sparse": lambda *given: speedups("sparse", *given),
    "limits": lambda *given: (row for data in DATA for row in limits(data, *given)),
    "best_sizes": best_sizes,
    "gaps": gaps,
    "reached": reached,
}
