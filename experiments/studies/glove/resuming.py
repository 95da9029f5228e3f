"""Resumed runs of GloVe: what they share, and the state that they start from."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import flags

from dml.models.networks.glove import glove
from dml.runs import checkpoints, results
from dml.train import last_step
from dml.types import BadInput, Embeddings, Step
from studies.glove.strategies import Setup

# Flags that a resumed run may change. Results of rotation do not depend on the medium.
FREE = {"out", "epochs", "resume", "save_every", "watchdog", "check", "neighbours"}
FREE |= {"simulate", "network", "medium", "memory", "profile", *flags.WRITTEN}


def rules(values: flags.FlagValues, words: int, records: int) -> dict[str, Any]:
    """Return the flags and sizes that a resumed run must share."""
    chosen = flags.chosen(values).items()
    fixed = {f"--{k}": v for k, v in chosen if k not in FREE}
    return fixed | {"words": words, "records": records}


def begin(
    values: flags.FlagValues, rank: int, words: int, rules: Mapping[str, Any]
) -> tuple[int, Embeddings]:
    """Return the number of completed epochs and the state after them."""
    if not values.resume:
        return 0, glove(words, values.dim, values.tables).init(values.seed)

    def warn(line: str) -> None:
        if rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, checkpoints.FOLDER)
    shapes = state_shapes(words * values.tables, values.dim)
    epoch, arrays, _ = checkpoints.load(folder, rules, shapes, warn)
    complete = results.folder_status(Path(values.resume)) == results.DONE
    if epoch > values.epochs or (epoch == values.epochs and complete):
        raise BadInput(
            f"expected more epochs than the {epoch} of the run in {values.resume}, got "
            f"--epochs={values.epochs}; the run is complete: pass a larger --epochs"
        )
    return epoch, Embeddings(**arrays)


def state_shapes(rows: int, dim: int) -> dict[str, str]:
    """Return the dtypes and shapes of the state of `rows` words and contexts."""
    matrix, vector = f"float32[{rows}, {dim}]", f"float32[{rows}]"
    return dict(zip(Embeddings._fields, (matrix, vector, matrix, vector), strict=True))


def finished(setup: Setup, done: int) -> Step | None:
    """Return the last step of an earlier run if it had all epochs."""
    if setup.epochs:
        return None
    return last_step(setup.flags.resume, setup.problem.params, epoch=done)
