"""Trainings of diloco.py: a small GPT on virtual ranks, and the sent bytes."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from lab import flags
import jax

from dml import sim
from dml.case import Case, mean, measure
from dml.data.minibatches import draws
from dml.problems import Entry, given, language
from dml.runs.writers import Row
from dml.strategies.decentral.diloco import Outer
from dml.task import Task
from dml.types import CountedComm, Params, Step
from dml.update.dense import Optimizer, make
from dml.update.schedules import schedule
from dml.wire.collectives import ALLREDUCE
from dml.wire.reducers.names import reducer

NETWORK = sim.Uniform(alpha=1e-3, beta=8e-9)  # 1 ms, 1 Gb/s
LAYERS, WIDTH, HEADS = 2, 64, 2
WARM_UP, DECAY, CLIP = 16, 0.1, 1.0  # 1/16 of the updates; AdamW's decay; norm


class Method(NamedTuple):
    """A training method and the period of its exchanges.

    Attributes:
      period: H, number of updates between outer steps; 0: synchronous training.
      reducer: Name of the reducer.
      fragments: Number of fragments P.
      delay: Delay τ of a fragment in updates.
    """

    period: int = 0
    reducer: str = "exact"
    fragments: int = 1
    delay: int = 0

    @property
    def name(self) -> str:
        """Return the strategy, its period, and options that are not the default."""
        if not self.period:
            return "synchronous"
        parts = [f"diloco H={self.period}"]
        parts += [f"P={self.fragments}"] * (self.fragments > 1)
        parts += [f"delay={self.delay}"] * bool(self.delay)
        return " ".join(parts + [self.reducer] * (self.reducer != "exact"))


class Start(NamedTuple):
    """Start parameters, and the state of the optimizer; None: a new state."""

    params: Params
    state: Any = None


def methods(values: flags.FlagValues) -> list[Method]:
    """Return the methods of the flags; raise BadInput if one cannot run."""
    period = values.period
    chosen = [Method(), *map(Method, flags.integers(values, "periods"))]
    chosen += [Method(period, name) for name in values.reducers.split(",") if name]
    for fragments in flags.integers(values, "fragments", empty=True):
        for delay in flags.whole_numbers(values, "delays"):
            chosen.append(Method(period, "exact", fragments, delay))
    for method in chosen:
        reducer(method.reducer, ALLREDUCE["ring"])
        if method.period:
            Outer(method.period, 1.0, 0.0, method.fragments, method.delay).check()
    return list(dict.fromkeys(chosen))


def make_task(values: flags.FlagValues) -> Task:
    """Return the network and the text of the flags."""
    sizes = values.length, LAYERS, WIDTH, HEADS
    return language(values.corpus, values.vocabulary, *sizes)


@cache  # the optimizer is a static argument of the compiled update
def optimizer(lr: float, steps: int) -> Optimizer:
    rate = schedule("cosine", lr, steps, steps // WARM_UP)
    return make("adamw", rate, clip=CLIP, decay=DECAY)


def pretrain(task: Task, seed: int, values: flags.FlagValues) -> Start:
    """Return the start values of all methods, by synchronous training on one rank."""
    start = Start(task.model.init(jax.random.key(seed)))
    if not values.pretraining:
        return start
    entry = given_text(task, start, seed, values, range(values.pretraining))

    def trained(comm: CountedComm, last: Step) -> Row:
        return {"start": jax.device_get(Start(last.params(), last.state()))}

    (measured,) = measure(Case(entry, "serial"), evaluate=trained)
    made: Start = measured.evaluation["start"]
    return made


def given_text(
    task: Task, start: Start, seed: int, values: flags.FlagValues, updates: range
) -> Entry:
    """Return the problem of a start value, with the minibatches of some updates."""
    batch, total = values.batch * values.ranks, values.pretraining + values.steps
    numbers = batch * updates.stop, batch * updates.start
    order = list(draws(task.training.count, batch, seed, *numbers))
    return given(task.problem(params=start.params), order, optimizer(values.lr, total))


def train(
    task: Task, method: Method, start: Start, seed: int, values: flags.FlagValues
) -> Row:
    """Train on virtual ranks; return the loss, bytes and seconds.

    Args:
      task: The network and its text.
      method: The method.
      start: Parameters and state of the optimizer.
      seed: Seed of minibatches.
      values: The flags.
    """
    updates = range(values.pretraining, values.pretraining + values.steps)
    case = Case(
        given_text(task, start, seed, values, updates),
        "diloco" if method.period else "synchronous",
        {"state": start.state, **options(method, values)},
        ranks=values.ranks,
        network=NETWORK,
    )
    measured = measure(case)
    return {
        "loss": measured[0].evaluation["cross_entropy"],
        "bytes_sent": mean([rank.bytes for rank in measured]),
        "peak_bytes": max(rank.peak_bytes for rank in measured),
        "seconds": max(rank.seconds for rank in measured),
    }


def options(method: Method, values: flags.FlagValues) -> Mapping[str, Any]:
    """Return the options of the method's strategy."""
    shared = {"reducer": reducer(method.reducer, ALLREDUCE["ring"])}
    if not method.period:
        return shared
    return shared | {
        "outer_every": method.period,
        "outer_lr": values.outer_lr,
        "outer_momentum": values.outer_momentum,
        "fragments": method.fragments,
        "delay": method.delay,
        "keep": values.keep if method.delay else 0.0,
    }
