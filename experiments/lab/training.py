"""A training as a command: its Steps on each rank, its run folder, its summary."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from lab import flags, timelines, writing

from dml.figures import style as figures
from dml.runs import folder, writers
from dml.train import train
from dml.types import CountedComm, Params, Problem, Step
from dml.wire.comm.once import once
from dml.wire.mesh import devices


class Training(NamedTuple):
    """The Steps of a run, and the problem that evaluates their parameters."""

    problem: Problem
    steps: Iterator[Step]
    evaluate_every: int  # in updates, or in epochs for Steps with an epoch


def run(
    values: flags.FlagValues,
    name: str,
    training: Callable[[CountedComm], Training],
    on_devices: bool = False,
) -> list[dict[str, Any]]:
    """Train on all ranks; return the summaries of this process's ranks.

    Args:
      values: Flags.
      name: Name of the command, for its run folder.
      training: Returns the training on a rank.
      on_devices: Whether the strategy trains on the devices of JAX.
    """
    path = folder.path(values.out, name)

    def program(comm: CountedComm) -> dict[str, Any]:
        if on_devices:
            devices.start(comm)
        comm = flags.delayed(values, comm)
        problem, steps, every = training(comm)

        def evaluate(params: Params) -> Mapping[str, Any]:
            call = partial(problem.evaluate, params)
            return once(comm, "evaluation", id(params), call)

        shown = writers.console(values.steps), figures.chart(path / "loss")
        with writing.run_writer(path, values, comm, *shown) as writer:
            traced = timelines.traced(
                steps, comm, values.timeline, path, values.profile
            )
            summary = train(traced, evaluate, writer, every)
            writer.summary(summary)
        return summary

    return flags.ranks(program, values, devices=on_devices)
