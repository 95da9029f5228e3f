"""Training of a deep network on workers and spares that may die; see --elastic."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, resuming, writing
import jax
import numpy as np

from dml.data.minibatches import draws
from dml.figures.learning import learning
from dml.runs import writers
from dml.runs.results import INTERRUPTED
from dml.runs.writers import Writer
from dml.strategies.elastic import Elastic, Saved
from dml.train import train, verified
from dml.types import BadInput, CountedComm, Step
from dml.wire.collectives.broadcast import broadcast
from dml.wire.comm.tags import Tag
from dml.wire.recovery import Members
from studies.deep import flags as deep_flags
from studies.deep import strategies
from studies.deep.following import FollowingWriter, following, saved_on_worker_0
from studies.deep.preparation import (
    DeepTask,
    evaluate_held_out,
    prepare,
    progress_line,
    stopped_text,
)
from studies.deep.requests import Requests
from studies.deep.setup import Setup
from studies.deep.steps import Speed, renumbered

ALLREDUCE = "halving_doubling"  # for auto, which would measure after each death
PATH_BYTES = 4096
POLL_SECONDS = 0.002


def check(values: flags.FlagValues) -> None:
    """Raise BadInput for flags that an elastic run does not support."""
    if values.strategy != "synchronous":
        raise BadInput(
            f"expected --strategy=synchronous with --elastic, got "
            f"{values.strategy}; delete one of them"
        )
    base = values.reduce.split(":")[0]
    if base not in ("exact", "order_free"):
        raise BadInput(
            "expected --reduce=exact or order_free with --elastic, as their reducers "
            f"keep no state of a rank, got {values.reduce}; pass --reduce=order_free"
        )
    for name in ("timeline", "attack", "profile"):
        if name in values and values[name].value != values[name].default:
            raise BadInput(
                f"expected no --{name} with --elastic, got {values[name].value}; "
                "delete it"
            )


def shared_path(comm: CountedComm, path: Path) -> Path:
    """Return the path of rank 0 on all ranks; collective."""
    text = str(path).encode().ljust(PATH_BYTES, b"\0")
    buffer = np.frombuffer(text, np.uint8).copy()
    broadcast(comm, buffer)
    return Path(buffer.tobytes().rstrip(b"\0").decode())


def attempt(
    setup: Setup,
    total: int,
    comm: CountedComm,
    saved: Saved,
    commit: Callable[[], object],
) -> Iterator[Step]:
    """Yield the Steps that follow a state.

    Args:
      setup: Arguments of the strategy.
      total: Number of examples that the run draws.
      comm: Workers.
      saved: State to continue from.
      commit: Called before every update.
    """
    values, problem = setup.values, setup.problem
    batches = draws(
        problem.examples, values.batch, values.seed, total, saved.number * values.batch
    )
    setup = setup._replace(
        comm=comm,
        problem=problem._replace(params=saved.params()),
        batches=batches,
        state=saved.state(),
        done=saved.number,
        commit=commit,
    )
    return renumbered(strategies.steps(setup), saved.number)


def verify(every: int, comm: CountedComm, step: Step) -> None:
    """Verify that replicas are bit-identical, after every `every` updates; 0: never."""
    if every and step.number % every == 0:
        list(verified([step], comm, 1))


def finish_first(comm: CountedComm, call: Callable[[], Any]) -> None:
    """Call on rank 0 while the other ranks wait; collective."""
    empty = np.empty(0, np.uint8)
    if comm.rank == 0:
        call()
        for rank in range(1, comm.size):
            comm.Send(empty, rank, Tag.FIRST)
        return
    request = comm.Irecv(empty, 0, Tag.FIRST)
    while not comm.platform.virtual and not request.Test():
        time.sleep(POLL_SECONDS)
    request.Wait()


def prepare_run(
    values: flags.FlagValues,
    comm: CountedComm,
    requests: Requests,
    built: DeepTask,
) -> tuple[Elastic, Setup, int]:
    """Return the elastic run, the arguments of its strategy, and the total updates.

    Args:
      values: Flags.
      comm: Communicator of all ranks.
      requests: Requests to stop and to change the number of workers.
      built: Network and data.
    """
    check(values)
    workers = comm.size - values.spares
    members = Members(comm, workers)
    if values.reduce.startswith("order_free"):
        values.shards = values.shards or workers
    strategies.check(values, workers)
    if values.allreduce == "auto":
        values.allreduce = ALLREDUCE
    setup, updates = prepare(values, comm, built)
    requests.stopped()  # after this call a signal no longer raises
    total = deep_flags.total(values, built.count)
    params, state = setup.problem.params, setup.state
    if state is None:
        state = setup.update.init(params)
    start = Saved(setup.done, lambda: params, lambda: state)
    continued = partial(attempt, setup, total)
    check_step = partial(verify, values.check_every)
    run = Elastic(members, continued, start, updates, requests, check_step)
    if members.comm is None and not comm.platform.virtual:
        run.warm_up()
    return run, setup, updates


def train_rank(
    values: flags.FlagValues,
    comm: CountedComm,
    path: Path,
    stopped: Callable[[], bool],
    built: DeepTask,
) -> dict[str, Any]:
    """Train on this rank as a worker or a spare; return the summary of worker 0.

    Args:
      values: Flags.
      comm: Communicator of all ranks.
      path: Run folder.
      stopped: () -> whether a signal to stop was received.
      built: Network and data.
    """
    begun = time.perf_counter()
    path = shared_path(comm, path)
    run, setup, updates = prepare_run(values, comm, Requests(path, stopped), built)
    members = run.members
    speed = Speed(built.units)
    text = partial(progress_line, speed, built)

    def open_writer(append: bool) -> AbstractContextManager[Writer]:
        return writing.run_writer(
            path,
            values,
            members.own,
            writers.console(updates, setup.done, row_text=text),
            learning(path / "loss"),
            append=append,
            ranks=comm.size,
        )

    def measure(params: Any) -> Mapping[str, Any]:
        if run.saved.number >= updates:
            return {}
        return evaluate_held_out(built, members.comm.rank, params)

    resumed = resuming.resumes(values, path)
    writer = FollowingWriter(members, open_writer, path, resumed)
    summary: dict[str, Any] = {}
    with following(writer) as files:
        steps = saved_on_worker_0(run, speed.of(run.steps()), values, path)
        first = next(steps, None)
        if first is not None:
            summary = train(
                chained(first, steps), measure, files, values.evaluate_every
            )

        def conclude() -> None:
            last = jax.device_get(run.saved.params())
            summary.update(evaluate_held_out(built, 0, last), loss=run.saved.loss)
            summary.update(built.finish(path, last))
            summary.update(step=run.saved.number, steps=run.saved.number)
            summary.update(describe(members), total_seconds=time.perf_counter() - begun)
            summary[f"{built.unit}_per_second"] = speed.rate
            if run.saved.number < updates:
                summary["status"] = INTERRUPTED
            files.summary(summary)

        run.finish(lambda workers: finish_first(workers, conclude))
    if members.comm is not None and run.saved.number < updates:
        exit_stopped(members, stopped_text(run.saved.number, updates, path))
    return summary


def exit_stopped(members: Members, text: str) -> None:
    """End a worker of a run that was stopped by a signal, with exit code STOPPED."""
    if members.comm.platform.virtual:
        raise flags.Stopped(text)
    # not by flags.Stopped, whose barrier fails after a death
    if members.comm.rank == 0:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {text}\n")
    sys.exit(flags.STOPPED)


def describe(members: Members) -> dict[str, Any]:
    """Return deaths and recoveries as entries of the summary."""
    seconds = [recovery.seconds for recovery in members.recoveries]
    return {
        "deaths": members.deaths,
        "recoveries": len(seconds),
        "recovery_seconds": max(seconds, default=0.0),
        "workers": members.comm.size if members.comm else 0,
    }


def chained(first: Step, steps: Iterator[Step]) -> Iterator[Step]:
    yield first
    yield from steps
