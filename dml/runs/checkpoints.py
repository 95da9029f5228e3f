"""Checkpoints of GloVe, in the layout of the reference program.

The C program resumes from the two binary files, parameters and AdaGrad's accumulators,
by -load-init-param and -load-init-gradsq. Each has a table for words and one for
contexts.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dml.evaluation.vectors import load_state, replacing, save_state
from dml.types import BadInput, Embeddings

INDEX = "checkpoint.json"
FILES = ("parameters", "squares")  # squares: AdaGrad's sums of squared gradients


def save(folder: Path, epoch: int, rules: Mapping[str, Any], state: Embeddings) -> None:
    """Replace the checkpoint in a folder; a complete one exists at every moment.

    A state with NaN or infinity is not saved.

    Args:
      folder: Folder of the checkpoint.
      epoch: Number of completed epochs.
      rules: Flags and sizes on which the result of the run depends, among them the
        number of tables.
      state: Vectors, biases and accumulators.
    """
    if not all(np.isfinite(array).all() for array in state):
        return
    words = len(state.biases_T) // tables(rules)
    dim = state.vectors_TxD.shape[1]
    file_names = {key: f"{key}-{epoch}.bin" for key in FILES}
    vectors, biases, *squares = state
    for file_name, (rows_TxD, bias_T) in zip(
        file_names.values(), ((vectors, biases), squares), strict=True
    ):
        save_state(
            folder / file_name,
            rows_TxD[:words],
            bias_T[:words],
            rows_TxD[
                -words:
            ],  # the same rows if there is one table: the C program always has two
            bias_T[-words:],
        )
    index: dict[str, Any] = {"epoch": epoch, "words": words, "dim": dim, **file_names}
    index["rules"] = dict(rules)
    with replacing(folder / INDEX) as file:
        file.write(json.dumps(index, indent=2).encode())
    for old in folder.glob("*.bin"):
        if old.name not in file_names.values():
            with suppress(OSError):
                old.unlink()


def load(folder: Path, rules: Mapping[str, Any]) -> tuple[int, Embeddings]:
    """Return the number of completed epochs, and the state.

    Raises BadInput if the rules differ from the rules of the saved run.
    """
    try:
        index = json.loads((folder / INDEX).read_text())
        epoch = int(index["epoch"])
        files = [folder / index[key] for key in FILES]
        saved = dict(index["rules"])
        shape = int(index["words"]), int(index["dim"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"expected a checkpoint in {folder}, got {error!r}; pass "
            "--resume=<the folder of a run that was stopped>"
        ) from error
    for rule, value in rules.items():
        if saved.get(rule) != value:
            name = rule if rule == "words" else f"--{rule}"
            raise BadInput(
                f"expected {name}={saved.get(rule)} as in the run to resume, got "
                f"{name}={value}; pass the corpus and the flags of "
                f"{folder.parent}/config.json"
            )
    contents = [load_state(file, *shape) for file in files]
    count = tables(rules)
    return epoch, Embeddings(
        *(
            np.concatenate([words, contexts][:count])
            for vectors, biases, contexts_VxD, context_biases in contents
            for words, contexts in ((vectors, contexts_VxD), (biases, context_biases))
        )
    )


def tables(rules: Mapping[str, Any]) -> int:
    """Return the number of tables: 2, or 1 if words and contexts share a table."""
    return int(rules["tables"])
