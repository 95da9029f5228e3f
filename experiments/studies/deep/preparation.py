"""Network and data of a training by the flags; its start, resume and checkpoints."""

import math
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lab import adversaries, flags, timelines
import jax
import numpy as np

from dml.data.minibatches import draws, take
from dml.evaluation.scores import evaluate
from dml.models.model_problem import model_problem
from dml.runs import results, states
from dml.runs.snapshots import snapshot
from dml.strategies import DECENTRALISED
from dml.types import (
    BadInput,
    Batch,
    CountedComm,
    Examples,
    Model,
    Params,
    Problem,
    Step,
)
from dml.wire.collectives.gather_arrays import gather_arrays
from studies.deep import flags as deep_flags
from studies.deep import hybrid as deep_hybrid
from studies.deep import strategies
from studies.deep.setup import MakeTensor, Setup, output_names
from studies.deep.steps import Speed

EXTENSION = (
    "only a run of --steps with --schedule=constant and a number of --warmup_steps can "
    "be extended, since other rates depend on the number of steps"
)


class DeepTask(NamedTuple):
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


def prepare(
    values: flags.FlagValues, comm: CountedComm, task: DeepTask
) -> tuple[Setup, int]:
    """Return the arguments of the strategy, new or resumed, and the total updates."""
    total = deep_flags.total(values, task.count)
    deep_hybrid.check_batches(values, total)
    steps = -(-total // values.batch)
    params = initial_params(values, task.model)
    outputs = output_names(task.model)
    optimizer = deep_flags.optimizer(values, steps, params, outputs)
    rules = deep_flags.rules(values)
    problem = model_problem(
        task.model,
        params,
        examples=task.count,
        take=partial(take, task.training),
        evaluate=partial(evaluate_held_out, task, comm.rank),
    )
    done, params, state, memory = start_or_resume(
        values, problem, optimizer, comm, steps, rules
    )
    problem = problem._replace(params=params)
    # Virtual ranks have a virtual clock; strategies on devices use the real one.
    devices_only = values.strategy in strategies.ON_DEVICES
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


def initial_params(values: flags.FlagValues, model: Model) -> Params:
    """Return the initial params; in host memory if devices have not all of them."""
    if not strategies.has(values, "device_mb"):
        return model.init(jax.random.key(values.seed))
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return jax.device_get(model.init(jax.random.key(values.seed)))


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
    problem: Problem,
    optimizer: Any,
    comm: CountedComm,
    steps: int,
    rules: Mapping[str, Any],
) -> tuple[int, Params, Any, Any]:
    """Return completed updates, params, optimizer state, and memory by saved rank."""
    if not values.resume:
        return 0, problem.params, None, None

    def write_line(line: str) -> None:
        if comm.rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, "checkpoints")
    like = {
        "params": problem.params,
        "state": strategies.initial_state(values, problem, optimizer),
        "memory": states.shapes(folder, "memory"),
    }
    extended = deep_flags.can_be_extended(values)
    free = ["--steps"] if extended else []
    try:
        done, saved = states.load(folder, rules, like, write_line, free)
    except BadInput as error:
        if str(error).startswith(("expected --steps=", "expected --epochs=")):
            raise BadInput(f"{error}; {EXTENSION}") from error
        raise
    complete = results.folder_status(Path(values.resume)) == results.DONE
    if done > steps or (done == steps and complete):
        advice = "pass a larger --steps" if extended else f"start another; {EXTENSION}"
        raise BadInput(
            f"expected more than the {done} steps of the run in {values.resume}, got "
            f"{steps}; the run is complete: {advice}"
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


def stopped_text(done: int, updates: int, path: Path) -> str:
    """Return the message of a run that was stopped by a signal."""
    return f"stopped after update {done} of {updates}; to resume, pass --resume={path}"


def evaluate_held_out(task: DeepTask, rank: int, params: Params) -> dict[str, Any]:
    """Evaluate on held-out data; rank 0 only."""
    if rank:
        return {}
    metrics = evaluate(task.model, task.held_out, jax.device_get(params))
    metrics["params_sha256"] = metrics.pop("sha256")
    if "cross_entropy" in metrics and task.unit == "tokens":
        metrics["perplexity"] = math.exp(metrics["cross_entropy"])
    return metrics


def progress_line(speed: Speed, task: DeepTask, row: Mapping[str, Any]) -> str:
    return f"loss {row['loss']:.4f}  {speed.rate:,.0f} {task.unit}/s"
