"""Drive a strategy: pull its Steps, evaluate, write rows, return a summary."""

import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dml.runs.writers import Row, Writer, ignore
from dml.types import BadInput, Comm, Params, Step

GRACE = 0.25  # seconds until a signal has come to all ranks
SOON = 0.001  # seconds until a signal that comes too early is looked at again
NUMBA = "numba.core.serialize"


@np.errstate(over="ignore", invalid="ignore")  # a loss that is not finite says it
def train(
    steps: Iterable[Step],
    evaluate: Callable[[Params], Mapping[str, Any]],
    writer: Writer,
    evaluate_every: int = 0,
    finite: bool = True,
) -> dict[str, Any]:
    """Pull every step, write a row for each, and return the summary.

    Args:
      steps: a strategy's.
      evaluate: params -> measures; called where a step's parameters are collected.
      writer: receives a row per step.
      evaluate_every: epochs, or updates where steps have no epoch, between evaluations;
        0 evaluates at the end only.
      finite: whether a loss that is not finite ends the run.

    Seconds are those of the steps' phases, without evaluation and writing. Costs are
    summed in the summary; measures are those of the last step.
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
            row |= evaluated(evaluate, last)
        writer.row(row)
        before = count(last)
    if last is None:
        raise BadInput("expected at least one step, got none; pass more batches")
    numbers = {f"{name}s": value for name, value in progress(last).items()}
    return {
        "loss": last.loss,
        **last.measures,
        **evaluated(evaluate, last),
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


def progress(step: Step) -> dict[str, int]:
    """Return the updates so far and, of strategies that count them, the epochs."""
    epoch = {} if step.epoch is None else {"epoch": step.epoch}
    return {"step": step.number} | epoch


def count(step: Step) -> int:
    """Return the epochs so far, or else the updates."""
    return step.number if step.epoch is None else step.epoch


def evaluated(
    evaluate: Callable[[Params], Mapping[str, Any]], step: Step
) -> Mapping[str, Any]:
    """Evaluate where the parameters are collected; collective."""
    params = step.params()
    return {} if params is None else evaluate(params)


def due(number: int, before: int | None, every: int) -> bool:
    """Say whether a multiple of every was reached since the step before; 0: never.

    Steps may be of many updates, and so pass it by.
    """
    before = number - 1 if before is None else before
    return bool(every) and number // every > before // every


def checked(steps: Iterable[Step], comm: Comm, every: int) -> Iterator[Step]:
    """Pass steps on; prove at every so many that all replicas are equal; 0: at none.

    Ranks agree at these steps, so all must call it. Params that are collected on one
    rank have no replicas.
    """
    from dml.metrics.replicas import Diverged, different  # takes half a second

    before = None
    for step in steps:
        if due(count(step), before, every) and step.replicas:
            leaf = different(step.params(), comm)
            if leaf is not None:
                raise Diverged(
                    f"expected equal replicas on {comm.size} ranks at step "
                    f"{step.number}, got other bits in params{leaf}; go on from the "
                    "last checkpoint, and look at what each rank does to this leaf"
                )
        yield step
        before = count(step)


def kept(
    steps: Iterable[Step],
    comm: Comm,
    save: Callable[[Step], None],
    every: float,
    asked: Callable[[], bool],
) -> Iterator[Step]:
    """Pass steps on; save after so many seconds and the last one; stop if asked to.

    0 seconds save nothing but what is stopped.
    Ranks agree at every step, so save may be collective; NaN is never saved.
    """
    asked()  # from now on there is something to save
    saved, step = time.monotonic(), None
    for step in steps:
        due = every and time.monotonic() - saved >= every
        wishes = np.array([asked(), due], np.int32)
        comm.Allreduce(None, wishes, np.maximum)
        if wishes.any() and math.isfinite(step.loss):
            save(step)
            saved = time.monotonic()
        yield step
        if wishes[0]:
            return
    if every and step:
        save(step)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a yes to the question that is yielded.

    Before the question is first asked, it is a KeyboardInterrupt: nothing to save yet.
    """
    came: list[int] = []
    asking = False
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: Any) -> None:
        if not asking and frame and frame.f_globals.get("__name__") == NUMBA:
            # order matters: a kernel's C code calls this module for its results, and
            # crashes where an exception comes back
            signal.signal(signal.SIGALRM, note)
            signal.setitimer(signal.ITIMER_REAL, SOON)
            return
        if not asking:  # mpirun passes on what the terminal has sent: one is enough
            for number in signals:
                signal.signal(number, signal.SIG_IGN)
            time.sleep(GRACE)  # it comes to one rank after another: then clean up
            raise KeyboardInterrupt
        restore()  # a second one ends the run at once
        came.append(number)

    def asked() -> bool:
        nonlocal asking
        asking = True
        return bool(came)

    for number in signals:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()


def costs(step: Step) -> dict[str, Any]:
    """Return what a step used up, flat: its examples, words and seconds."""
    return {
        "examples": step.examples,
        "words_sent": step.words_sent,
        "seconds": sum(step.seconds.values()),
        **{f"{phase}_seconds": spent for phase, spent in step.seconds.items()},
    }
