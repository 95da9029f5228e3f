"""The training loop of all commands: steps, evaluation, rows and a summary."""

import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.runs import results
from dml.runs.saves import Saves, Write
from dml.runs.writers import Row, Writer, ignore
from dml.types import BadInput, Comm, Params, Step

SIGNAL_SECONDS = 0.25  # seconds within which a signal reaches all ranks
RETRY_SECONDS = 0.001  # seconds until a signal that arrived inside NUMBA is handled
NUMBA = "numba.core.serialize"


@np.errstate(over="ignore", invalid="ignore")  # reported by the check of the loss
def train(
    steps: Iterable[Step],
    evaluate: Callable[[Params], Mapping[str, Any]],
    writer: Writer,
    evaluate_every: int = 0,
    finite: bool = True,
    finished: Step | None = None,
) -> dict[str, Any]:
    """Run all steps, write a row for each, and return the summary.

    Seconds are those of the steps' phases, without evaluation and writing. The summary
    has sums of costs and the measures of the last step.

    Args:
      steps: Steps of a strategy.
      evaluate: params -> measures by name; called on ranks on which a step's
        parameters are collected.
      writer: Receives a row per step.
      evaluate_every: Number of epochs, or of updates for steps without epochs, between
        evaluations; 0 evaluates at the end only.
      finite: Whether a loss that is not finite ends the run.
      finished: The last step of an earlier run, evaluated if there are no steps.
    """
    totals: Counter[str] = Counter()
    last = before = None
    for last in steps:
        if finite and not math.isfinite(last.loss):
            raise FloatingPointError(
                f"expected a finite loss, got {last.loss} at step {last.number}; "
                "pass a lower --lr"
            )
        spent = costs(last)
        totals.update(spent)
        row = progress(last) | {"loss": last.loss, **last.measures, **spent}
        if due(count(last), before, evaluate_every):
            row |= evaluate_step(evaluate, last)
        writer.row(row)
        before = count(last)
    if last is None and finished:
        last = finished
        totals.update(costs(last))
    if last is None:
        raise BadInput("expected at least one step, got none; pass more batches")
    numbers = {f"{name}s": value for name, value in progress(last).items()}
    return {
        "loss": last.loss,
        **last.measures,
        **evaluate_step(evaluate, last),
        **numbers,
        **totals,
    }


class Curve(NamedTuple):
    """The result of `train` without a run folder."""

    rows: list[Row]  # one per step
    summary: dict[str, Any]

    @property
    def losses(self) -> list[float]:
        """Return the loss of every step."""
        return [row["loss"] for row in self.rows]


def curve(
    steps: Iterable[Step],
    evaluate: Callable[[Params], Mapping[str, Any]] = lambda params: {},
    evaluate_every: int = 0,
    finite: bool = True,
) -> Curve:
    """Train without a run folder, as one of several runs that a command compares.

    The arguments are those of `train`.
    """
    rows: list[Row] = []
    writer = Writer(rows.append, ignore)
    return Curve(rows, train(steps, evaluate, writer, evaluate_every, finite))


def last_step(
    path: str | Path, params: Params, number: int = 0, epoch: int | None = None
) -> Step:
    """Return the last step of the run in a folder, without costs.

    Args:
      path: Run folder. It has all steps of the run and no summary.
      params: Parameters of the checkpoint.
      number: Number of updates; by default that of the last row.
      epoch: Number of epochs, if a step is an epoch.
    """
    *_, row = [{}, *results.read(Path(path)).rows]
    names = ("step", "epoch", "loss", "examples", "words_sent", "seconds")
    measures = {
        name: value
        for name, value in row.items()
        if name not in names and not name.endswith("_seconds")
    }
    loss = row.get("loss", math.nan)
    number = number or row.get("step", 0)
    return Step(number, loss, lambda: params, 0, {}, 0, measures, epoch=epoch)


def progress(step: Step) -> dict[str, int]:
    """Return the number of updates so far and, if the step has epochs, of epochs."""
    epoch = {} if step.epoch is None else {"epoch": step.epoch}
    return {"step": step.number} | epoch


def count(step: Step) -> int:
    """Return the number of epochs so far or, for steps without epochs, of updates."""
    return step.number if step.epoch is None else step.epoch


def evaluate_step(
    evaluate: Callable[[Params], Mapping[str, Any]], step: Step
) -> Mapping[str, Any]:
    """Evaluate on the ranks on which the parameters are collected; collective."""
    params = step.params()
    return {} if params is None else evaluate(params)


def due(number: int, before: int | None, every: int) -> bool:
    """Return whether a multiple of `every` is above `before` and at most `number`.

    A step may consist of many updates, so `number` itself need not be a multiple. 0 has
    no multiples.
    """
    before = number - 1 if before is None else before
    return bool(every) and number // every > before // every


def verified(steps: Iterable[Step], comm: Comm, every: int) -> Iterator[Step]:
    """Yield the steps; verify at intervals that replicas are bit-identical.

    The verification is collective, so all ranks must iterate. Parameters that are
    collected on one rank have no replicas.

    Args:
      steps: Steps of a strategy.
      comm: Ranks.
      every: Number of epochs or updates between verifications; 0: never.
    """
    from dml.metrics.replicas import Diverged, first_difference  # slow: 0.5 s

    before = None
    for step in steps:
        if due(count(step), before, every) and step.replicas:
            leaf = first_difference(step.params(), comm)
            if leaf is not None:
                raise Diverged(
                    f"expected equal replicas on {comm.size} ranks at step "
                    f"{step.number}, got different bits in params{leaf}; resume from "
                    "the last checkpoint, and check how each rank updates this leaf"
                )
        yield step
        before = count(step)


def checkpointed(
    steps: Iterable[Step],
    comm: Comm,
    save: Callable[[Step], Write | None],
    every: float,
    stop_requested: Callable[[], bool],
    share: float = 0.0,
) -> Iterator[Step]:
    """Yield the steps; save at intervals, at the end, and before a requested stop.

    Rank 0 decides when a save is due, and ranks agree at every step, so `save` may be
    collective. A step whose loss is not finite is not saved. Close the generator if an
    error may end the iteration: it waits for a write in progress.

    Args:
      steps: Steps of a strategy.
      comm: Ranks.
      save: Saves a step, or returns a function that writes a snapshot of the step. On
        real ranks the function is called in the background; its errors are raised at
        the next save or at the end.
      every: Seconds between saves; 0 saves before a stop only.
      stop_requested: () -> whether a stop was requested.
      share: Largest share of the time that saves take, which determines the interval in
        place of `every`; 0: no bound.
    """
    stop_requested()  # after this call a signal no longer raises: a step is saved
    step = None
    with Saves(every, share, threaded=not comm.platform.virtual) as saves:
        for step in saves.timed(steps):
            due = comm.rank == 0 and saves.due()
            requests = np.array([stop_requested(), due], np.int32)  # stop, save
            comm.Allreduce(None, requests, np.maximum)
            if requests.any() and math.isfinite(step.loss):
                saves.save(partial(save, step))
            yield step
            if requests[0]:
                return
        if (every or share) and step:
            saves.save(partial(save, step))


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C or SIGTERM was received.

    Before the first call of the function a signal raises KeyboardInterrupt, as there is
    nothing to save yet. A second signal ends the run at once.
    """
    received: list[int] = []
    polled = False  # whether stop_requested was called
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, frame: Any) -> None:
        if not polled and frame and frame.f_globals.get("__name__") == NUMBA:
            # order matters: a kernel's C code calls Numba's Python code to convert
            # results, and crashes if the call raises
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
            return
        if not polled:  # the terminal and mpirun send it: ignore the second
            for number in signals:
                signal.signal(number, signal.SIG_IGN)
            time.sleep(SIGNAL_SECONDS)  # until all ranks have received the signal
            raise KeyboardInterrupt
        restore()  # a second signal ends the run at once
        received.append(number)

    def stop_requested() -> bool:
        nonlocal polled
        polled = True
        return bool(received)

    for number in signals:
        signal.signal(number, handle)
    try:
        yield stop_requested
    finally:
        restore()


def costs(step: Step) -> dict[str, Any]:
    """Return the examples, words and seconds of a step, flat."""
    return {
        "examples": step.examples,
        "words_sent": step.words_sent,
        "seconds": sum(step.seconds.values()),
        **{f"{phase}_seconds": spent for phase, spent in step.seconds.items()},
    }
