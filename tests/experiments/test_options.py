"""Every option of every strategy: its boundary values train, or are refused.

The options are those of the signatures of the table; a new strategy and a new option
are covered without a change of this file.
"""

import inspect
import math
from functools import cache
from itertools import repeat

import pytest
from studies.matrix.methods import METHODS

from dml import sim
from dml.case import Case, steps
from dml.evaluation.scores import digest
from dml.problems import PROBLEMS, Entry
from dml.strategies import STRATEGIES, fitting, load
from dml.strategies.decentral.replicas import train_replicas
from dml.strategies.hybrid.parts import Pipeline
from dml.strategies.loops.bucket_sums import train_tree
from dml.strategies.loops.row_sums import train_table
from dml.train import curve
from dml.types import BadInput, ranges
from dml.wire.mesh import devices
from tests.strategies.actors import tabular, test_apex

UPDATES = 4
ACTORS = ("apex", "impala", "seed")
SMALLEST = ["completion", "linear", "mlp", "gpt", "columns"]  # problems, in this order
VALUES = [0, -1, 1, 1 << 63, 1e300, math.nan, math.inf, -math.inf, 0.5]
VALUES += ["", "nonsense", "ring:-1", "repetition:-1", None, True, [1]]
USUAL = (None, True, 1, 0.5)
# Loops that receive the options in **own of a strategy: the strategy, and a problem.
LOOPS = {
    train_tree: ("synchronous", "linear"),
    train_table: ("synchronous", "completion"),
    train_replicas: ("gossip", "completion"),
}


def small_case(name, problems):
    """Return a small training by a strategy, with the first problem that it trains."""
    if name == "apex":
        entry = Entry(test_apex.problem, 1, test_apex.OPTIMIZER, batches=zeros)
        return Case(entry, name, test_apex.SMALL, ranks=3, steps=20)
    if name in ACTORS:
        entry = Entry(tabular.problem, 1, tabular.UPDATE, batches=zeros)
        return Case(entry, name, ranks=3, steps=UPDATES)
    for small in problems:
        case = method_of(name).case(PROBLEMS[small], UPDATES)
        fits = name in fitting(case.problem.make())
        if fits and (name, small) != ("kfac", "linear"):
            return case
    raise LookupError(f"expected a small problem that {name} can train, got none")


def zeros(problem, batch, seed):
    """Return the minibatches of actors, which are counted only."""
    return repeat(0)


def method_of(name):
    """Return the first row of the matrix with a strategy."""
    method = next(each for each in METHODS.values() if each.strategy == name)
    if name != "hybrid":
        return method
    axes = devices.mesh(data=1, stage=1, tensor=1)  # of one device
    return method._replace(own={"axes": axes, "pipeline": Pipeline("gpipe", 4)})


def run(name, problems=tuple(SMALLEST), **options):
    """Return the summary of a training, and whether its parameters changed."""
    case = small_case(name, problems)
    # also a strategy that does not fit
    case = case._replace(strategy=load(name), options={**case.options, **options})

    def program(comm):
        hashes = {digest(case.problem.make().params)}

        def evaluate(params):
            hashes.add(digest(params))
            return {}

        return curve(steps(case, comm), evaluate).summary, len(hashes) > 1

    return sim.run(program, case.ranks, limits=sim.Limits(1e5))[0]


@cache
def examples_of(name, problems):
    """Return the number of examples of the training with default options."""
    return run(name, problems)[0]["examples"]


CASES = [(name, None, tuple(SMALLEST)) for name in STRATEGIES]
CASES += [(name, loop, (problem,)) for loop, (name, problem) in LOOPS.items()]


@pytest.mark.parametrize("name, loop, problems", CASES)
def test_boundary_values_train_or_are_refused_in_one_line(name, loop, problems):
    function = loop or load(name)
    named = inspect.signature(function).parameters
    for option, kind in ranges.options(function).items():
        default = named[option].default if option in named else None
        assert kind.kind in (bool, str) or kind.range, f"{option} has no range"
        for value in VALUES:
            inside = kind.has(value)
            usual = value == default or (kind.kind is not str and value in USUAL)
            if inside and usual:
                continue
            case = f"{option}={value!r}"
            try:
                summary, changed = run(name, problems, **{option: value})
            except (BadInput, FloatingPointError) as error:
                assert "expected" in str(error) and "\n" not in str(error), case
                assert isinstance(error, BadInput) or inside, case
            except Exception as error:
                raise AssertionError(f"{case}: {error!r}") from error
            else:
                assert inside, case
                # a weight of ‖w‖₁ may be so large that zeros are the minimum
                assert changed or case == "outer_lr=0" or option == "l1", case
                assert math.isfinite(summary["loss"]), case
                assert summary["examples"] == examples_of(name, problems), case
