"""Drive a strategy: Steps in, rows to the writer, one flat summary out."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.metrics.writers import Writer
from dml.types import BadInput, Batch, Model, Params, Step


def train(
    steps: Iterable[Step],
    model: Model,
    held_out: Batch,
    writer: Writer,
    evaluate_every: int,
) -> dict[str, Any]:
    """Pull every step, evaluate on held_out now and then, and return the summary.

    Seconds are those of the steps' phases: evaluation and writing do not count.
    """
    totals: Counter[str] = Counter()
    last = None
    for last in steps:
        if not math.isfinite(last.loss):
            raise FloatingPointError(
                f"expected a finite loss, got {last.loss} at step {last.number}; "
                "pass a lower --learning_rate"
            )
        spent = costs(last)
        totals.update(spent)
        row = {"step": last.number, "loss": last.loss, **spent}
        if last.number % evaluate_every == 0:
            row |= evaluate(model, last.params, held_out)
        writer.row(row)
    if last is None:
        raise BadInput("expected at least one step, got none; pass more batches")
    summary = {
        "loss": last.loss,
        **evaluate(model, last.params, held_out),
        "steps": last.number,
        **totals,
        "sha256": digest(last.params),
    }
    writer.summary(summary)
    return summary


def costs(step: Step) -> dict[str, Any]:
    """Return what a step used up, flat: its examples, words and seconds."""
    return {
        "examples": step.examples,
        "words_sent": step.words_sent,
        "seconds": sum(step.seconds.values()),
        **{f"{phase}_seconds": spent for phase, spent in step.seconds.items()},
    }


def evaluate(model: Model, params: Params, batch: Batch) -> dict[str, float]:
    """Return the model's metrics as numbers."""
    metrics = _metrics(model.metrics, params, batch)
    return {name: float(value) for name, value in metrics.items()}


def digest(params: Params) -> str:
    """Return a hash of every bit of params: equal replicas have equal ones."""
    sha256 = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        sha256.update(np.asarray(leaf).tobytes())
    return sha256.hexdigest()


@partial(jax.jit, static_argnums=0)
def _metrics(
    metrics: Callable[[Params, Batch], Mapping[str, Any]], params: Params, batch: Batch
) -> Mapping[str, Any]:
    return metrics(params, batch)
