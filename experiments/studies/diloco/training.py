"""Trainings of diloco.py: a small GPT on virtual ranks, and the sent bytes."""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from lab import flags
import jax
import numpy as np

from dml import sim
from dml.data.minibatches import draws, take
from dml.data.text.tokens import tokens
from dml.data.text.windows import causal_windows
from dml.evaluation.scores import evaluate
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.transformer import Shape, transformer
from dml.strategies import strategy
from dml.strategies.decentral.diloco import Outer
from dml.types import Batch, CountedComm, Examples, Model, Params, Problem
from dml.update.dense import Optimizer, make
from dml.update.schedules import schedule
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.names import reducer

NETWORK = sim.Uniform(alpha=1e-3, beta=8e-9)  # 1 ms, 1 Gb/s
LAYERS, WIDTH, HEADS = 2, 64, 2
HELD_OUT = 512  # windows that are evaluated
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


class Task(NamedTuple):
    """A network, its examples, and the optimizer of all trainings."""

    model: Model
    training: Examples
    held_out: Batch
    update: Optimizer


class Start(NamedTuple):
    """Start parameters, and the state of the optimizer; None: a new state."""

    params: Params
    state: Any = None


class Trained(NamedTuple):
    """The result of a training.

    Attributes:
      loss: Cross-entropy of a token of held-out text, in nats.
      nbytes: Bytes sent by a rank, mean over ranks.
      peak: Largest number of bytes that a rank sends in one update.
      seconds: Virtual seconds of all exchanges on NETWORK.
    """

    loss: float
    nbytes: float
    peak: float
    seconds: float


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
    """Return the task of the flags."""
    text = tokens(values.corpus, "bpe", values.vocabulary)
    training, held_out = causal_windows(text.ids, values.length)
    words = text.tokenizer.get_vocab_size()
    model = transformer(Shape(words, values.length, LAYERS, WIDTH, HEADS), True)
    steps = values.pretraining + values.steps
    rate = schedule("cosine", values.lr, steps, steps // WARM_UP)
    update = make("adamw", rate, clip=CLIP, decay=DECAY)
    return Task(model, training, Batch(*(x[:HELD_OUT] for x in held_out)), update)


def problem_of(task: Task, params: Params) -> Problem:
    """Return the problem of all ranks, from a start value."""
    training = task.training
    read = partial(take, training)
    return model_problem(task.model, params, examples=training.count, take=read)


def pretrain(task: Task, seed: int, values: flags.FlagValues) -> Start:
    """Return the start values of all methods, by synchronous training on one rank.

    Args:
      task: The task.
      seed: Seed of the start value and of minibatches.
      values: The flags.
    """
    params, batch = task.model.init(jax.random.key(seed)), values.batch * values.ranks
    if not values.pretraining:
        return Start(params)
    order = draws(task.training.count, batch, seed, batch * values.pretraining)
    problem = problem_of(task, params)

    def program(comm: CountedComm) -> Start:
        steps = strategy("serial", problem)(
            problem, order, task.update, comm=comm, timer=Timer(comm.Wtime)
        )
        (last,) = deque(steps, 1)
        return Start(last.params(), last.state())

    (start,) = sim.run(program, 1)
    return jax.device_get(start)


def train(
    task: Task, method: Method, start: Start, seed: int, values: flags.FlagValues
) -> Trained:
    """Train on virtual ranks.

    Args:
      task: The task.
      method: The method.
      start: Parameters and state of the optimizer.
      seed: Seed of minibatches.
      values: The flags.
    """
    problem = problem_of(task, start.params)
    batch, done = values.batch * values.ranks, values.pretraining
    total, skipped = batch * (done + values.steps), batch * done
    order = list(draws(problem.examples, batch, seed, total, skipped))

    def program(comm: CountedComm) -> tuple[float, ...]:
        comm = Metered(comm)
        steps = strategy("diloco" if method.period else "synchronous", problem)(
            problem,
            order,
            task.update,
            comm=comm,
            timer=Timer(comm.Wtime),
            state=start.state,
            **options(method, values),
        )
        sent = peak = 0
        for step in steps:
            peak, sent = max(peak, comm.bytes_sent - sent), comm.bytes_sent
            collect = step.params
        seconds, params = comm.Wtime(), collect()
        if comm.rank:
            return 0.0, sent, peak, seconds
        measures = evaluate(task.model, task.held_out, params)
        return measures["cross_entropy"], sent, peak, seconds

    results = np.array(sim.run(program, values.ranks, NETWORK))
    _, nbytes, _, _ = results.mean(axis=0)
    _, _, peak, seconds = results.max(axis=0)
    return Trained(results[0, 0], nbytes, peak, seconds)


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
