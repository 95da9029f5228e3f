"""Training of a deep network by the flags.

flags → Task → Problem → Steps of a strategy → guarded, checked, kept → train
"""

import math
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from lab import compiling, flags, timelines, writing

from dml.data.minibatches import draws, take
from dml.evaluation.scores import evaluate
from dml.figures.learning import learning
from dml.models.network import network
from dml.runs import folder as runs
from dml.runs import states, writers
from dml.train import checked, interruptible, kept, train
from dml.types import BadInput, Batch, CountedComm, Examples, Model, Params, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.collect import collect
from dml.wire.comm import first_of_all
from dml.wire.mesh import devices
from studies.deep import flags as deep_flags
from studies.deep import hybrid as deep_hybrid
from studies.deep import strategies
from studies.deep.setup import Cutter, Setup
from studies.deep.steps import Speed, guarded, renumbered


class Task(NamedTuple):
    """A network and its data."""

    model: Model
    training: Batch | Examples
    held_out: Batch
    unit: str  # of the speed: images, tokens
    units: int  # in an example
    # called on rank 0 at the end: folder, params -> numbers of the summary
    finish: Callable[[Path, Params], Mapping[str, Any]]
    tensor: Cutter | None = None  # None: it cannot be divided over `tensor`

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
    on_mesh = values.strategy in strategies.ON_DEVICES
    with interruptible() as asked, compiling.fitting():
        compiling.cached()

        def program(comm: CountedComm) -> dict[str, Any]:
            if on_mesh:
                devices.start(comm)
            return train_rank(values, comm, path, asked, task)

        return flags.ranks(program, values, devices=on_mesh)


def prepared(
    values: flags.FlagValues, comm: CountedComm, task: Task
) -> tuple[Setup, int]:
    """Return the start of a run, new or resumed, and its number of updates."""
    total = deep_flags.total(values, task.count)
    deep_hybrid.check_batches(values, total)
    steps = -(-total // values.batch)
    params = task.model.init(jax.random.key(values.seed))
    optimizer = deep_flags.optimizer(values, steps, params)
    rules = deep_flags.rules(values)
    done, params, state, memory = start_or_resume(
        values, params, optimizer, comm, steps, rules
    )
    # Virtual ranks have a clock of their own; devices, though of one of them, do not.
    devices_only = values.strategy in strategies.ON_DEVICES
    problem = network(
        task.model,
        params,
        examples=task.count,
        take=partial(take, task.training),
        evaluate=partial(scores, task, comm.rank),
    )
    order = draws(task.count, values.batch, values.seed, total, done * values.batch)
    setup = Setup(
        values,
        comm,
        problem,
        order,
        optimizer,
        timelines.timer(comm, time.perf_counter if devices_only else comm.Wtime),
        state,
        memory,
        done,
        task.tensor,
    )
    return setup, steps


def train_rank(
    values: flags.FlagValues,
    comm: CountedComm,
    path: Path,
    asked: Callable[[], bool],
    task: Callable[[], Task],
) -> dict[str, Any]:
    """Train on this rank; return its summary."""
    begun, comm = time.perf_counter(), flags.delayed(values, comm)
    strategies.check(values, strategies.workers(values, comm))
    found = task()
    setup, steps = prepared(values, comm, found)
    speed = Speed(found.units)
    save = partial(saved, comm, path / "checkpoints", deep_flags.rules(values))
    shown = [strategies.step_count(values, updates) for updates in (steps, setup.done)]
    with writing.first(
        path,
        values,
        comm,
        writers.console(*shown, says=partial(progress_line, speed, found)),
        learning(path / "loss"),
        append=bool(values.resume),
    ) as writer:
        some = strategies.steps(setup)
        some = renumbered(guarded(some, comm.platform.virtual), setup.done)
        some = timelines.traced(some, comm, values.timeline, path, values.profile)
        some = checked(some, comm, values.check_every)
        some = kept(speed.of(some), comm, save, values.save_every, asked)
        summary = train(some, setup.problem.evaluate, writer, values.evaluate_every)
        params = jax.device_get(speed.last.params())
        if comm.rank == 0:
            summary |= found.finish(path, params)
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


def saved(
    comm: CountedComm, folder: Path, rules: Mapping[str, Any], step: Step
) -> None:
    """Save params, the optimizer's state and each rank's memory; collective."""
    tree = {"params": jax.device_get(step.params()), "state": step.state()}
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(step.memory())]
    tree["memory"] = []
    if leaves:
        parts = collect(comm, *(leaf.reshape(1, *leaf.shape) for leaf in leaves))
        tree["memory"] = [np.concatenate(part) for part in parts or ()]
    if comm.rank == 0:
        states.save(folder, step.number, tree, rules)


def start_or_resume(
    values: flags.FlagValues,
    params: Params,
    optimizer: Any,
    comm: CountedComm,
    steps: int,
    rules: Mapping[str, Any],
) -> tuple[int, Params, Any, Any]:
    """Return the updates done; params, the optimizer's state and the memory then."""
    if not values.resume:
        return 0, params, None, None

    def say(line: str) -> None:
        if comm.rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, "checkpoints")
    like = {
        "params": params,
        "state": jax.eval_shape(optimizer.init, params),
        "memory": states.shapes(folder, "memory"),
    }
    done, saved = states.load(folder, rules, like, say)
    if done >= steps:
        raise BadInput(
            f"expected more than the {done} steps that are done, got {steps}; the run "
            f"in {values.resume} has ended: start another"
        )
    memory = saved.pop("memory") or None
    if memory and len(memory[0]) != comm.size:
        say(
            f"the reducer's memory of {len(memory[0])} ranks is dropped: this run has "
            f"{comm.size}"
        )
        memory = None
    # bound to no device: a mesh moves them to its own
    saved = jax.device_put(saved)
    own = memory and [leaf[comm.rank] for leaf in memory]
    return done, saved["params"], saved["state"], own


def scores(task: Task, rank: int, params: Params) -> dict[str, Any]:
    """Evaluate on held-out data; rank 0 only."""
    if rank:
        return {}
    found = evaluate(task.model, task.held_out, jax.device_get(params))
    found["params_sha256"] = found.pop("sha256")
    if task.unit == "tokens":
        found["perplexity"] = math.exp(found["cross_entropy"])
    return found


def progress_line(speed: Speed, task: Task, row: Mapping[str, Any]) -> str:
    return f"loss {row['loss']:.4f}  {speed.rate:,.0f} {task.unit}/s"
