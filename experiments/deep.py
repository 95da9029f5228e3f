"""Training of a deep network, whatever it learns: flags and a Task in, a run out.

flags → Task (model, examples) → Steps of a strategy → guarded, checked, kept → train
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import compiling
import deep_flags
import deep_ways
import flags
import jax
import numpy as np
import timelines

from dml.data.minibatches import draws
from dml.metrics import runs, states, writers
from dml.metrics.evaluation import evaluate
from dml.metrics.learning import learning
from dml.train import checked, interruptible, kept, train
from dml.types import BadInput, Batch, CountedComm, Examples, Model, Params, Step
from dml.wire.mesh import devices
from dml.wire.messages import first_of_all, tree_allreduce


class Task(NamedTuple):
    """What a network learns."""

    model: Model
    training: Batch | Examples
    held_out: Batch
    unit: str  # what is counted a second: images, tokens
    units: int  # of an example
    # on rank 0, at the end: folder and params in, numbers of the summary out
    finish: Callable[[Path, Params], Mapping[str, Any]]

    @property
    def count(self) -> int:
        data = self.training
        return data.count if isinstance(data, Examples) else len(data.targets)


def run(
    values: flags.FlagValues, argv: list[str], name: str, task: Callable[[], Task]
) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    flags.parse(values, argv)
    path = runs.path(values.out or values.resume, name)
    on_mesh = values.strategy == "mesh"
    with interruptible() as asked, compiling.fitting():
        compiling.cached()

        def program(comm: CountedComm) -> dict[str, Any]:
            if on_mesh:
                devices.start(comm)
            return learn(values, comm, path, asked, task)

        return flags.ranks(program, values, devices=on_mesh)


def learn(
    values: flags.FlagValues,
    comm: CountedComm,
    path: Path,
    asked: Callable[[], bool],
    task: Callable[[], Task],
) -> dict[str, Any]:
    begun = time.perf_counter()
    workers = deep_ways.workers(values, comm)
    deep_flags.divisible(values, workers)
    deep_ways.fits(values, workers)
    found = task()
    total = deep_flags.total(values, found.count)
    steps = -(-total // values.batch)
    params = found.model.init(jax.random.key(values.seed))
    optimizer = deep_flags.optimizer(values, steps, params)
    done, params, state = begin(values, params, optimizer, comm.rank, steps)
    setup = deep_ways.Setup(
        *(values, comm, found.model, params, found.training),
        draws(found.count, values.batch, values.seed, total, done * values.batch),
        optimizer,
        timelines.timer(comm, comm.Wtime, flags.delay(values, comm)),
        state,
    )
    speed = Speed(found.units)

    def save(step: Step) -> None:
        whole = step.state() if step.state else None  # collective
        if comm.rank == 0:
            tree = {"params": jax.device_get(step.params), "state": whole}
            states.save(
                path / "checkpoints", step.number, tree, deep_flags.rules(values)
            )

    def measure(params: Params) -> dict[str, Any]:
        return scores(found, params) if comm.rank == 0 else {}

    every = values.local_every if values.strategy == "local" else 1
    with writers.first(
        comm.rank,
        writers.console(
            steps // every, done // every, says=partial(says, speed, found)
        ),
        runs.folder(path, flags.chosen(values), append=bool(values.resume)),
        learning(path / "loss"),
    ) as writer:
        some = deep_ways.STRATEGIES[values.strategy](setup)
        some = onward(guarded(some, comm.network is not None), done)
        some = timelines.traced(some, comm, values.timeline, path)
        some = checked(some, comm, values.check_every)
        some = kept(speed.of(some), comm, save, values.save_every, asked)
        summary = train(some, measure, writer, values.evaluate_every)
        if comm.rank == 0:
            summary |= found.finish(path, jax.device_get(speed.last.params))
        first_of_all(comm, lambda: None)  # the others sleep while rank 0 finishes
        words = np.array([summary["words_sent"]])
        tree_allreduce(comm, words)
        summary |= {
            f"{found.unit}_per_second": speed.rate,
            "words_sent": int(words[0]),
            "first_step_seconds": speed.first - begun,
            "total_seconds": time.perf_counter() - begun,
        }
        writer.summary(summary)
    return summary


def begin(
    values: flags.FlagValues, params: Params, optimizer: Any, rank: int, steps: int
) -> tuple[int, Params, Any]:
    """Return the steps done, and params and the optimizer's state after them."""
    if not values.resume:
        return 0, params, None
    like = {"params": params, "state": jax.eval_shape(optimizer.init, params)}
    done, saved = states.load(
        Path(values.resume, "checkpoints"),
        deep_flags.rules(values),
        like,
        lambda line: sys.stderr.write(f"{line}\n") if rank == 0 else None,
    )
    if done >= steps:
        raise BadInput(
            f"expected more than the {done} steps that are done, got {steps}; the run "
            f"in {values.resume} has ended: start another"
        )
    saved = jax.device_put(saved, jax.local_devices()[0])
    return done, saved["params"], saved["state"]


def guarded(steps: Iterator[Step], virtual: bool) -> Iterator[Step]:
    """Pass steps on; after the first no number moves to or from a device unasked.

    Virtual ranks share a thread, and so a guard: they have none.
    """
    yield next(steps)
    guard = "allow" if virtual else "disallow"
    while True:
        with jax.transfer_guard(guard):
            step = next(steps, None)
        if step is None:
            return
        yield step


def onward(steps: Iterable[Step], done: int) -> Iterator[Step]:
    """Number the steps of a run that goes on."""
    return (step._replace(number=step.number + done) for step in steps)


class Speed:
    """Units a second, without the steps that compile; the first and the last step."""

    def __init__(self, units: int) -> None:
        self.units, self.examples, self.seconds = units, 0, 0.0
        self.first = 0.0

    def of(self, steps: Iterable[Step]) -> Iterator[Step]:
        for number, self.last in enumerate(steps):
            if not number:
                self.first = time.perf_counter()
            if number < 2:  # alone, they are better than nothing
                self.examples, self.seconds = 0, 0.0
            self.examples += self.last.examples
            self.seconds += sum(self.last.seconds.values())
            yield self.last

    @property
    def rate(self) -> float:
        return self.units * self.examples / self.seconds if self.seconds else 0.0


def scores(task: Task, params: Params) -> dict[str, Any]:
    """Return what the model makes of what it has not learned from."""
    if callable(params):
        params = params()
    found = evaluate(task.model, task.held_out, params)
    found["params_sha256"] = found.pop("sha256")
    if task.unit == "tokens":
        found["perplexity"] = math.exp(found["cross_entropy"])
    return found


def says(speed: Speed, task: Task, row: Mapping[str, Any]) -> str:
    return f"loss {row['loss']:.4f}  {speed.rate:,.0f} {task.unit}/s"
