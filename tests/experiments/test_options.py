"""Every option of every strategy: its boundary values train, or are refused.

The options are those of the signatures of the table; a new strategy and a new option
are covered without a change of this file.
"""

import inspect
import math
from functools import cache
from itertools import repeat

import pytest
from studies.matrix.cells import digest
from studies.matrix.methods import METHODS
from studies.matrix.problems import PROBLEMS

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies import STRATEGIES, fitting, load
from dml.strategies.bucket_sums import train_tree
from dml.strategies.decentral.replicas import train_replicas
from dml.strategies.hybrid.parts import Pipeline
from dml.strategies.row_sums import train_table
from dml.train import curve
from dml.types import BadInput, ranges
from dml.wire.comm import Metered
from dml.wire.mesh import devices
from tests.strategies.actors import tabular, test_apex

UPDATES = 4
ACTORS = ("apex", "impala", "seed")
SMALLEST = ["completion", "linear", "mlp", "gpt"]  # problems, in this order
VALUES = [0, -1, 1, 1 << 63, 1e300, math.nan, math.inf, -math.inf, 0.5]
VALUES += ["", "nonsense", "ring:-1", "repetition:-1", None, True, [1]]
USUAL = (None, True, 1, 0.5)
# Loops that receive the options in **own of a strategy: the strategy, and a problem.
LOOPS = {
    train_tree: ("synchronous", "linear"),
    train_table: ("synchronous", "completion"),
    train_replicas: ("gossip", "completion"),
}


def arguments(name, comm, problems):
    """Return problem, batches, update and options of a small training."""
    if name == "apex":
        made, update = test_apex.problem(), test_apex.OPTIMIZER
        return made, repeat(0, 20), update, test_apex.SMALL
    if name in ACTORS:
        return tabular.problem(), range(UPDATES), tabular.UPDATE, {}
    method = method_of(name)
    for small in problems:
        entry = PROBLEMS[small]
        made, *others = method.arguments(entry, entry.make(), UPDATES)
        if name in fitting(made) and (name, small) != ("kfac", "linear"):
            return made, *others, method.own(entry, comm)
    raise LookupError(f"expected a small problem that {name} can train, got none")


def method_of(name):
    """Return the first row of the matrix with a strategy."""
    method = next(each for each in METHODS.values() if each.strategy == name)
    if name != "hybrid":
        return method
    axes = devices.mesh(data=1, stage=1, tensor=1)  # of one device
    own = {"axes": axes, "pipeline": Pipeline("gpipe", 4)}
    return method._replace(own=lambda entry, comm: own)


def run(name, problems=tuple(SMALLEST), **options):
    """Return the summary of a training, and whether its parameters changed."""

    def program(comm):
        common = {"comm": Metered(comm), "timer": Timer(comm.Wtime)}
        problem, batches, update, own = arguments(name, common["comm"], problems)
        hashes = {digest(problem.params)}
        steps = load(name)(problem, batches, update, **common | own | options)

        def evaluate(params):
            hashes.add(digest(params))
            return {}

        return curve(steps, evaluate).summary, len(hashes) > 1

    size = 3 if name in ACTORS else method_of(name).ranks
    return sim.run(program, size, limits=sim.Limits(1e5))[0]


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
                assert changed or case == "outer_lr=0", case
                assert math.isfinite(summary["loss"]), case
                assert summary["examples"] == examples_of(name, problems), case
