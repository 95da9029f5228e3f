"""Checkpoints of GloVe, in the layout of the reference program.

The C program resumes from the two files with -load-init-param and -load-init-gradsq.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dml.evaluation.vectors import load_state, replacing, save_state
from dml.types import BadInput, Embeddings

INDEX, KINDS = "checkpoint.json", ("parameters", "squares")


def save(folder: Path, epoch: int, rules: Mapping[str, Any], state: Embeddings) -> None:
    """Replace the checkpoint in a folder; a complete one exists at every moment.

    A state with a number that is not finite is not saved.

    Args:
      folder: Folder of the checkpoint.
      epoch: Number of completed epochs.
      rules: Flags on which the result of the run depends, with the number of tables.
      state: Vectors, biases and accumulators.
    """
    if not all(np.isfinite(numbers).all() for numbers in state):
        return
    words, dim = len(state.biases_T) // tables(rules), state.vectors_TxD.shape[1]
    names = {kind: f"{kind}-{epoch}.bin" for kind in KINDS}
    vectors, biases, *squares = state
    for name, (rows_TxD, bias_T) in zip(
        names.values(), ((vectors, biases), squares), strict=True
    ):
        save_state(
            folder / name,
            rows_TxD[:words],
            bias_T[:words],
            rows_TxD[-words:],  # the same rows if there is one table; C always has two
            bias_T[-words:],
        )
    index = {"epoch": epoch, "words": words, "dim": dim, **names, "rules": dict(rules)}
    with replacing(folder / INDEX) as file:
        file.write(json.dumps(index, indent=2).encode())
    for old in folder.glob("*.bin"):
        if old.name not in names.values():
            with suppress(OSError):
                old.unlink()


def load(folder: Path, rules: Mapping[str, Any]) -> tuple[int, Embeddings]:
    """Return the number of completed epochs, and the state.

    Raises BadInput if the rules are not those of the saved run.
    """
    try:
        index = json.loads((folder / INDEX).read_text())
        epoch, files = int(index["epoch"]), [folder / index[kind] for kind in KINDS]
        saved, shape = dict(index["rules"]), (int(index["words"]), int(index["dim"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"expected a checkpoint in {folder}, got {error!r}; pass "
            "--resume=<the folder of a run that was stopped>"
        ) from error
    for name, value in rules.items():
        if saved.get(name) != value:
            raise BadInput(
                f"expected --{name}={saved.get(name)} as in the run to resume, got "
                f"--{name}={value}; pass the flags of {folder.parent}/config.json"
            )
    parts = [load_state(file, *shape) for file in files]
    count = tables(rules)
    return epoch, Embeddings(
        *(
            np.concatenate([words, contexts][:count])
            for vectors, biases, contexts_VxD, context_biases in parts
            for words, contexts in ((vectors, contexts_VxD), (biases, context_biases))
        )
    )


def tables(rules: Mapping[str, Any]) -> int:
    """Return the number of tables of words and contexts: 1 or 2."""
    return int(rules["tables"])
