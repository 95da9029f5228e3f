"""Training of a deep network by the flags.

The flags determine a DeepTask, its Problem, and the Steps of a strategy. Filters then
guard, renumber, trace, verify and save the Steps.
"""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from lab import compiling, flags, timelines, writing
import jax
import numpy as np

from dml.figures.learning import learning
from dml.runs import folder as run_folders
from dml.runs import writers
from dml.runs.results import INTERRUPTED
from dml.train import checkpointed, interruptible, last_step, train, verified
from dml.types import BadInput, CountedComm
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import first_of_all
from dml.wire.mesh import devices
from studies.deep import elastic, strategies
from studies.deep import flags as deep_flags
from studies.deep.preparation import (
    DeepTask,
    prepare,
    progress_line,
    save_checkpoint,
    stopped_text,
)
from studies.deep.steps import Speed, guarded, renumbered


def run(
    values: flags.FlagValues, argv: list[str], name: str, task: Callable[[], DeepTask]
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
    flags.parse(values, argv, strategies.ON_DEVICES)
    path = run_folders.path(values.out or values.resume, name)
    on_mesh = values.strategy in strategies.ON_DEVICES
    with interruptible() as stopped, compiling.explain_memory_errors():
        compiling.enable_cache()

        def program(comm: CountedComm) -> dict[str, Any]:
            if on_mesh:
                devices.start(comm)
            return train_rank(values, comm, path, stopped, task)

        return flags.ranks(program, values, devices=on_mesh)


def train_rank(
    values: flags.FlagValues,
    comm: CountedComm,
    path: Path,
    stopped: Callable[[], bool],
    task: Callable[[], DeepTask],
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
        comm = flags.delayed(values, comm)
        return elastic.train_rank(values, comm, path, stopped, task())
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
        words_and_stops = np.array([summary["words_sent"], stopped()])
        tree_allreduce(comm, words_and_stops)
        summary |= {
            f"{built.unit}_per_second": speed.rate,
            "words_sent": int(words_and_stops[0]),
            "first_step_seconds": speed.first - start,
            "total_seconds": time.perf_counter() - start,
        }
        stopped_early = words_and_stops[1] and summary["steps"] < steps
        if stopped_early:
            summary["status"] = INTERRUPTED
        writer.summary(summary)
    if stopped_early:
        raise flags.Stopped(stopped_text(summary["steps"], steps, path))
    return summary
