"""Parity of a problem: comparison of its training on one process and on several.

    python -m dml.parity ./mine.py:make
    python -m dml.parity mlp --strategy=./mine.py:train --ranks=2

    serial     update 1   update 2   update 3        the reference
    a way      update 1   update 2 ≠                 the first update and tensor that
                                                     differ, and by how much
    probes     parts, order, repetition, one rank    why

A few updates by descent are compared with those of one process, after each update and
tensor by tensor. Sums in another order differ by some units in the last place; what
differs more is reported, with the cause if one of the probes finds it. The command
exits with 1 then.
"""

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dml import processes, sim
from dml.case import Case, steps
from dml.problems import Entry, find_problem
from dml.types import BadInput, Comm, Problem
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.reducers import exact

UPDATES, RATE = 3, 0.1
DEVICES = 2
LOOSE = 1e-4  # of the largest change of a tensor: more is no rounding
ULPS = 32  # of the largest value of a tensor: less is rounding


class Way(NamedTuple):
    """A way of training that should equal the serial one.

    Attributes:
      strategy: Name of the strategy.
      options: () -> options of the strategy.
      ranks: Number of virtual ranks.
      fits: Whether the problem can be trained this way.
    """

    strategy: str
    options: Callable[[], Mapping[str, Any]] = dict
    ranks: int = 1
    fits: Callable[[Problem], bool] = lambda problem: True


class Trace(NamedTuple):
    """Parameters of a rank, before the first update and after each one, and losses."""

    params: list[dict[str, np.ndarray]]
    losses: list[float]


class Difference(NamedTuple):
    """The first difference to the serial training.

    Attributes:
      update: Number of the update.
      loss: Relative difference of the loss before it.
      tensor: Name of the first tensor that differs after it; none: only the loss does.
      ulps: Its largest difference, in units in the last place of its largest value.
      norm: Norm of its gradient in this update.
      serial: The norm in the serial training.
    """

    update: int
    loss: float
    tensor: str = ""
    ulps: float = 0.0
    norm: float = 0.0
    serial: float = 0.0

    def __str__(self) -> str:
        """Two lines: where the trainings differ, and by how much."""
        if not self.tensor:
            return f"the loss\n    by {self.loss:.2g} of it"
        return (
            f"{self.tensor} by {self.ulps:.2g} ulp\n    norm of its gradient "
            f"{self.norm:.4g}, serial {self.serial:.4g}; loss by {self.loss:.2g} of it"
        )


def on_devices(**options: Any) -> Callable[[], Mapping[str, Any]]:
    def found() -> Mapping[str, Any]:
        from dml.wire.mesh import devices

        return {"axes": devices.mesh(data=DEVICES), **options}

    return found


def on_stages() -> Mapping[str, Any]:
    from dml.strategies.hybrid.parts import Pipeline
    from dml.wire.mesh import devices

    axes = devices.mesh(data=1, stage=DEVICES, tensor=1)
    return {"axes": axes, "pipeline": Pipeline("1f1b", 2)}


def summing() -> Mapping[str, Any]:
    return {"reducer": exact(ALLREDUCE["star"])}


def has_layers(problem: Problem) -> bool:
    return len(problem.model.layers if problem.model else ()) >= DEVICES


WAYS = {
    "2 parts of a minibatch": Way("serial", lambda: {"accumulate": 2}),
    "2 ranks": Way("synchronous", summing, ranks=2),
    "3 ranks": Way("synchronous", summing, ranks=3),
    "2 devices": Way("mesh", on_devices()),
    "2 devices, ZeRO 1": Way("mesh", on_devices(zero=1)),
    "2 devices, ZeRO 3": Way("mesh", on_devices(zero=3)),
    "2 stages of a pipeline": Way("hybrid", on_stages, fits=has_layers),
}


def trained(entry: Entry, way: Way, updates: int = UPDATES) -> list[Trace]:
    """Return the trace of each rank that has parameters."""
    update = make("sgd", RATE)

    def program(comm: Comm) -> Trace | None:
        options = way.options()
        case = Case(entry, way.strategy, options, update, way.ranks, steps=updates)
        found = Trace([named(entry.make().params)], [])
        for step in steps(case, comm):
            params = step.params()
            if params is None or (comm.rank and not step.replicas):
                return None
            found.params.append(named(params))
            found.losses.append(float(step.loss))
        return found

    return [trace for trace in sim.run(program, way.ranks) if trace is not None]


def named(params: Any) -> dict[str, np.ndarray]:
    """Return copies of the tensors of params by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/") or "params": np.array(
            leaf, np.float64
        )
        for path, leaf in leaves
    }


def first_difference(found: Trace, serial: Trace) -> tuple[Difference | None, float]:
    """Return the first difference that is no rounding; else the largest one in ulps."""
    largest = 0.0
    for number, want in enumerate(serial.losses, 1):
        loss = abs(found.losses[number - 1] - want) / max(abs(want), 1e-6)
        for name, tensor in serial.params[number].items():
            before, other = serial.params[number - 1][name], found.params[number][name]
            gap, change = np.abs(other - tensor).max(), np.abs(tensor - before).max()
            ulps = ulps_of(gap, np.abs(tensor).max())
            if not (gap <= LOOSE * change or ulps <= ULPS):
                norms = (
                    float(np.linalg.norm(one.params[number - 1][name] - after) / RATE)
                    for one, after in ((found, other), (serial, tensor))
                )
                return Difference(number, loss, name, ulps, *norms), largest
            largest = max(largest, ulps)
        if not loss <= LOOSE:
            return Difference(number, loss), largest
    return None, largest


def ulps_of(gap: Any, value: Any) -> float:
    return float(np.abs(gap) / np.spacing(np.float32(max(np.abs(value), 1e-30))))


def cause(entry: Entry, way: Way, traces: list[Trace]) -> str:
    """Return why a way differs from the serial training, as far as probes find it."""
    problem = entry.make()
    index = next(iter(entry.batches(problem, entry.batch, 0)))
    loss = mean_loss(problem)
    whole = loss(index)
    if loss(index) != whole:
        return (
            "the loss of a minibatch changes from call to call: it depends on a state, "
            "such as a random generator; make it a function of params and batch"
        )
    if differ(loss(index[::-1]), whole):
        return (
            "the loss depends on the order of the examples: random numbers, such as "
            "masks of dropout, are drawn by position, so that all ranks draw the same "
            "ones; draw them by a key of each example"
        )
    cut = len(index) // 3
    parts = (cut * loss(index[:cut]) + (len(index) - cut) * loss(index[cut:])) / len(
        index
    )
    if differ(parts, whole):
        return (
            "the loss is not a mean over examples: it is divided by another number, "
            "such as that of tokens or of a mask, or depends on statistics of the "
            "minibatch; means of parts then have other weights on several ranks"
        )
    for rank, trace in enumerate(traces[1:], 1):
        if any(differ_at(trace, traces[0], n) for n in range(1, len(trace.params))):
            return (
                f"the parameters of rank {rank} differ from those of rank 0: their "
                "gradients or parameters are not summed over the ranks"
            )
    if way.ranks > 1:
        shard = np.array_split(index, way.ranks)[0]
        one = trained(
            entry._replace(batches=lambda *_: iter([shard])), Way("serial"), 1
        )
        if not differ_at(one[0], traces[0], 1):
            return (
                "the update of rank 0 uses its own examples alone: gradients are not "
                "summed over the ranks"
            )
    return scaled(entry, way, traces)


def scaled(entry: Entry, way: Way, traces: list[Trace]) -> str:
    """Return whether the first gradient is a multiple of the serial one."""
    serial = trained(entry, Way("serial"), 1)[0]
    found = [trace.params[1] for trace in (traces[0], serial)]
    start = serial.params[0]
    one, other = (
        np.concatenate([(start[name] - params[name]).reshape(-1) for name in start])
        for params in found
    )
    ratio = float(one @ other / max(other @ other, 1e-300))
    if (
        abs(ratio - 1) > 1e-3
        and np.abs(one - ratio * other).max() <= LOOSE * np.abs(one).max()
    ):
        return (
            f"all gradients are {ratio:.4g} times the serial ones on {way.ranks} "
            "ranks: a sum in place of a mean, or a mean that is divided twice"
        )
    return "not found by the probes"


def differ_at(found: Trace, other: Trace, number: int) -> bool:
    """Return whether an update of two trainings differs by more than rounding."""
    one = Trace(found.params[: number + 1], [0.0] * number)
    two = Trace(other.params[: number + 1], [0.0] * number)
    return first_difference(one, two)[0] is not None


def mean_loss(problem: Problem) -> Callable[[np.ndarray], float]:
    def loss(index: np.ndarray) -> float:
        value = float(problem.gradient(problem.params, problem.take(index))[0])
        return value / len(index) if problem.sums else value

    return loss


def differ(one: float, other: float) -> bool:
    return not abs(one - other) <= LOOSE * max(abs(other), 1e-6)


def report(entry: Entry, strategy: str, ranks: int) -> Iterator[tuple[str, bool]]:
    """Yield a line for each way, and whether it differs; then the causes."""
    problem = entry.make()
    serial = trained(entry, Way("serial"))[0]
    ways = {strategy: Way(strategy, ranks=ranks)} if strategy else WAYS
    causes = dict[str, list[str]]()
    width = max(map(len, ways))
    for name, way in ways.items():
        if not way.fits(problem):
            yield f"  {name:<{width}}  not tried: the model has no layers", False
            continue
        traces = trained(entry, way)
        compared = [first_difference(trace, serial) for trace in traces]
        found = next((each for each, _ in compared if each), None)
        if found:
            line = f"DIFFERS at update {found.update}: {found}"
            causes.setdefault(cause(entry, way, traces), []).append(name)
        else:
            ulps = max(each for _, each in compared)
            line = f"rounding, at most {ulps:.2g} ulp" if ulps else "equal bits"
        yield f"  {name:<{width}}  {line}", found is not None
    for text, names in causes.items():
        of = "" if len(causes) == 1 else f" of {', '.join(names)}"
        yield textwrap.fill(f"cause{of}: {text}", 79, subsequent_indent="  "), True


def print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return 1 if a way differs, 2 after bad input."""
    parser = argparse.ArgumentParser(prog="python -m dml.parity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("problems", nargs="+", help="names, or FILE.py:NAME")
    parser.add_argument("--strategy", default="", help="strategy in place of the ways")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of --strategy")
    parser.add_argument("--batch", type=int, default=48, help="examples of a minibatch")
    options = parser.parse_args(argv)
    try:
        if options.batch < 6 or options.ranks < 2:
            raise BadInput(
                "expected --batch of at least 6 and --ranks of at least 2, got "
                f"{options.batch} and {options.ranks}; pass larger ones"
            )
        differs = False
        for name in options.problems:
            entry = find_problem(name)
            problem = entry.make()
            if problem.touched is not None:
                raise BadInput(
                    f"expected a tree of parameters in the problem {name}, got a table "
                    "of rows; compare its strategies by experiments/matrix.py"
                )
            batch = min(options.batch, problem.examples)
            print_line(f"parity of {name}: {UPDATES} updates, minibatches of {batch}")
            entry = entry._replace(batch=batch)
            for line, wrong in report(entry, options.strategy, options.ranks):
                print_line(line)
                differs |= wrong
    except BadInput as error:
        sys.stderr.write(f"parity: {error}\n")
        return 2
    return int(differs)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    with processes.safe_output():
        sys.exit(main())
