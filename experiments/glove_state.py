"""The state that a run of GloVe begins with: drawn from the seed, or a checkpoint."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import flags

from dml.metrics import checkpoints
from dml.models.glove import glove
from dml.types import BadInput, Embeddings, Step

# What may change when a run is resumed; ranks and medium change no bit of rotation.
FREE = {"out", "epochs", "resume", "save_every", "watchdog", "check", "neighbours"}
FREE |= {"simulate", "network", "medium", "memory", "profile", *flags.WRITTEN}


def rules(values: flags.FlagValues, words: int, records: int) -> dict[str, Any]:
    """Return what a run depends on, so that only such a run goes on from it."""
    fixed = {k: v for k, v in flags.chosen(values).items() if k not in FREE}
    return fixed | {"words": words, "records": records}


def begin(
    values: flags.FlagValues, words: int, rules: Mapping[str, Any]
) -> tuple[int, Embeddings]:
    """Return the epochs done and the state after them."""
    if not values.resume:
        return 0, glove(words, values.dim, values.tables).init(values.seed)
    epoch, state = checkpoints.load(Path(values.resume, "checkpoint"), rules)
    if epoch >= values.epochs:
        raise BadInput(
            f"expected more epochs than the {epoch} that are done, got "
            f"--epochs={values.epochs}; pass more"
        )
    return epoch, state


def resumed(steps: Iterator[Step], done: int) -> Iterator[Step]:
    """Count the epochs and updates of earlier runs; all epochs are equally long."""
    for step in steps:
        assert step.epoch
        before = done * (step.number // step.epoch)
        yield step._replace(number=before + step.number, epoch=done + step.epoch)
