"""Training of a deep network by the flags.

The flags determine a Task, its Problem, and the Steps of a strategy. Filters then
guard, renumber, trace, verify and save the Steps.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lab import adversaries, compiling, flags, timelines, writing
import jax
import numpy as np

from dml.data.minibatches import draws, take
from dml.evaluation.scores import evaluate
from dml.figures.learning import learning
from dml.models.model_problem import model_problem
from dml.runs import folder as run_folders
from dml.runs import states, writers
from dml.runs.snapshots import snapshot
from dml.strategies import DECENTRALISED
from dml.train import checkpointed, interruptible, last_step, train, verified
from dml.types import BadInput, Batch, CountedComm, Examples, Model, Params, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm import first_of_all
from dml.wire.mesh import devices
from studies.deep import elastic, strategies
from studies.deep import flags as deep_flags
from studies.deep import hybrid as deep_hybrid
from studies.deep.setup import MakeTensor, Setup
from studies.deep.steps import Speed, guarded, renumbered


class Task(NamedTuple):
    """A network and its data.

    model: the network.
    training: training examples.
    held_out: held-out examples.
    unit: name of the unit of speed: images or tokens.
    units: units in an example.
    finish: called on rank 0 at the end: folder, params -> entries of the summary.
    tensor: makes the tensor-parallel model; None where the network has none.
    """

    model: Model
    training: Batch | Examples
    held_out: Batch
    unit: str
    units: int
    finish: Callable[[Path, Params], Mapping[str, Any]]
    tensor: MakeTensor | None = None

    @property
    def count(self) -> int:
        data = self.training
        return data.count if isinstance(data, Examples) else len(data.targets)


def run(
    values: flags.FlagValues, argv: list[str], name: str, task: Callable[[], Task]
) -> list[dict[str, Any]]:
    """Train by the flags.

    Args:
        values: flags.
        argv: command line.
        name: name of the experiment, for its run folder.
        task: makes network and data.

    Returns:
        Summaries of the ranks of this process.
    """
    flags.parse(values, argv)
    path = run_folders.path(values.out or values.resume, name)
    on_mesh = values.strategy in strategies.ON_DEVICES
    with interruptible() as stopped, compiling.explain_memory_errors():
        compiling.enable_cache()

        def program(comm: CountedComm) -> dict[str, Any]:
            if on_mesh:
                devices.start(comm)
            return train_rank(values, comm, path, stopped, task)

        return flags.ranks(program, values, devices=on_mesh)


def prepare(
    values: flags.FlagValues, comm: CountedComm, task: Task
) -> tuple[Setup, int]:
    """Return the arguments of the strategy, new or resumed, and the total updates."""
    total = deep_flags.total(values, task.count)
    deep_hybrid.check_batches(values, total)
    steps = -(-total // values.batch)
    params = task.model.init(jax.random.key(values.seed))
    optimizer = deep_flags.optimizer(values, steps, params)
    rules = deep_flags.rules(values)
    done, params, state, memory = start_or_resume(
        values, params, optimizer, comm, steps, rules
    )
    # Virtual ranks have a virtual clock; strategies on devices use the real one.
    devices_only = values.strategy in strategies.ON_DEVICES
    problem = model_problem(
        task.model,
        params,
        examples=task.count,
        take=partial(take, task.training),
        evaluate=partial(evaluate_held_out, task, comm.rank),
    )
    sizes = values.batch, total, done * values.batch
    order = draws(task.count, values.batch, values.seed, *sizes[1:])
    parts = strategies.parts(values, strategies.workers(values, comm))
    problem, order = adversaries.shared_data(values, problem, order, parts, sizes)
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
    stopped: Callable[[], bool],
    task: Callable[[], Task],
) -> dict[str, Any]:
    """Train on this rank; return its summary.

    Args:
        values: flags.
        comm: communicator of all ranks.
        path: run folder.
        stopped: () -> whether a signal to stop was received.
        task: makes network and data.
    """
    if values.elastic:
        args = values, flags.delayed(values, comm), path, stopped, task()
        return elastic.train_rank(*args, prepare, evaluate_held_out, progress_line)
    if values.spares:
        raise BadInput(
            f"expected --elastic with --spares={values.spares}, got none; pass it"
        )
    start, comm = time.perf_counter(), flags.delayed(values, comm)
    strategies.check(values, strategies.workers(values, comm))
    built = task()
    setup, steps = prepare(values, comm, built)
    speed = Speed(built.units)
    save = partial(
        save_checkpoint, comm, path / "checkpoints", deep_flags.rules(values), {}
    )
    step_counts = [
        strategies.step_count(values, updates) for updates in (steps, setup.done)
    ]
    finished = None  # the last step, if only the summary is missing
    if setup.done == steps:
        finished = last_step(values.resume, setup.problem.params, steps)
    with writing.run_writer(
        path,
        values,
        comm,
        writers.console(*step_counts, row_text=partial(progress_line, speed, built)),
        learning(path / "loss"),
        append=bool(values.resume),
    ) as writer:
        steps_of_run = iter(()) if finished else strategies.steps(setup)
        steps_of_run = renumbered(
            guarded(steps_of_run, comm.platform.virtual), setup.done
        )
        steps_of_run = timelines.traced(
            steps_of_run, comm, values.timeline, path, values.profile
        )
        steps_of_run = verified(steps_of_run, comm, values.check_every)
        steps_of_run = checkpointed(
            speed.of(steps_of_run),
            comm,
            save,
            values.save_every,
            stopped,
            values.save_overhead / 100,
        )
        with closing(steps_of_run):
            summary = train(
                steps_of_run,
                setup.problem.evaluate,
                writer,
                values.evaluate_every,
                finished=finished,
            )
        params = jax.device_get((finished or speed.last).params())
        if comm.rank == 0:
            summary |= built.finish(path, params)
        first_of_all(comm, lambda: None)  # other ranks sleep while rank 0 finishes
        words = np.array([summary["words_sent"]])
        tree_allreduce(comm, words)
        summary |= {
            f"{built.unit}_per_second": speed.rate,
            "words_sent": int(words[0]),
            "first_step_seconds": speed.first - start,
            "total_seconds": time.perf_counter() - start,
        }
        writer.summary(summary)
    return summary


def save_checkpoint(
    comm: CountedComm,
    folder: Path,
    rules: Mapping[str, Any],
    buffers: MutableMapping[str, np.ndarray],
    step: Step,
) -> Callable[[], object] | None:
    """Copy params, optimizer state and each rank's reducer memory; collective.

    Args:
        comm: ranks.
        folder: folder of all checkpoints of the run.
        rules: flags on which the result depends.
        buffers: memory of the snapshots of this run, reused by each.
        step: step to save.

    Returns:
        On rank 0, the function that writes the checkpoint.
    """
    tree = {"params": step.params(), "state": step.state()}
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(step.memory())]
    tree["memory"] = []
    if leaves:
        parts = gather_arrays(comm, *(leaf.reshape(1, *leaf.shape) for leaf in leaves))
        tree["memory"] = [np.concatenate(part) for part in parts or ()]
    if comm.rank:
        return None
    copied = snapshot(tree, buffers)
    return lambda: states.write(folder, step.number, copied, rules)


def start_or_resume(
    values: flags.FlagValues,
    params: Params,
    optimizer: Any,
    comm: CountedComm,
    steps: int,
    rules: Mapping[str, Any],
) -> tuple[int, Params, Any, Any]:
    """Return completed updates, params, optimizer state, and memory by saved rank."""
    if not values.resume:
        return 0, params, None, None

    def write_line(line: str) -> None:
        if comm.rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, "checkpoints")
    like = {
        "params": params,
        "state": jax.eval_shape(optimizer.init, params),
        "memory": states.shapes(folder, "memory"),
    }
    done, saved = states.load(folder, rules, like, write_line)
    if done > steps or (done == steps and Path(values.resume, "summary.json").exists()):
        raise BadInput(
            f"expected more than the {done} steps of the run in {values.resume}, got "
            f"{steps}; the run is complete: start another"
        )
    stacked = saved.pop("memory")
    ranks = len(stacked[0]) if stacked else 0
    if ranks not in (0, comm.size) and values.strategy not in DECENTRALISED:
        write_line(
            f"the reducer's memory of {ranks} ranks is added up on {comm.size} ranks"
        )
    # not committed to a device, so that a mesh can place the arrays
    saved = jax.device_put(saved)
    memory = [[leaf[rank] for leaf in stacked] for rank in range(ranks)]
    return done, saved["params"], saved["state"], memory or None


def evaluate_held_out(task: Task, rank: int, params: Params) -> dict[str, Any]:
    """Evaluate on held-out data; rank 0 only."""
    if rank:
        return {}
    metrics = evaluate(task.model, task.held_out, jax.device_get(params))
    metrics["params_sha256"] = metrics.pop("sha256")
    if task.unit == "tokens":
        metrics["perplexity"] = math.exp(metrics["cross_entropy"])
    return metrics


def progress_line(speed: Speed, task: Task, row: Mapping[str, Any]) -> str:
    return f"loss {row['loss']:.4f}  {speed.rate:,.0f} {task.unit}/s"
