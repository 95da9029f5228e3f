"""Checkpoints of a run: trees of arrays, written by orbax.

Each folder step-N, where N is the number of the step, has the files of orbax and an
index: the rules of the run, the dtype and shape of each leaf, a hash of all leaves, and
a hash of each file. Rules are the flags that a resumed run must share. The files are
checked before orbax reads them, because orbax reports broken files only after the read,
from its threads.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dml.evaluation.scores import digest
from dml.runs.records import json_round_trip
from dml.runs.snapshots import (
    Snapshot,
    finite,
    leaves_by_path,
    shape_text,
    snapshot,
)
from dml.types import BadInput

INDEX, ARRAYS = "index.json", "arrays"
REPLACED = ".replaced"  # suffix of an earlier step-N until the new one is complete
STEP_FOLDER = re.compile(rf"step-(\d+)({re.escape(REPLACED)})?")


class Broken(Exception):
    """Raised for a checkpoint whose bits are not those that were saved."""


def save(
    folder: Path, number: int, state: Any, rules: Mapping[str, Any], keep: int = 2
) -> None:
    """Save a state as step-<number>; rank 0 only.

    After the first save, a complete checkpoint exists at every moment. A state with NaN
    or infinity is not saved.

    Args:
      folder: Folder of all checkpoints of the run.
      number: Number of the step. Checkpoints of later steps are deleted: they are from
        before a resume at an earlier step.
      state: A tree of arrays, random keys and numbers.
      rules: Flags on which the result of the run depends.
      keep: Number of checkpoints to keep.
    """
    write(folder, number, snapshot(state), rules, keep)


def write(
    folder: Path,
    number: int,
    snapshot: Snapshot,
    rules: Mapping[str, Any],
    keep: int = 2,
) -> None:
    """Write a snapshot as step-<number>, as `save` does; rank 0 only.

    Args:
      folder: As in `save`.
      number: As in `save`.
      snapshot: Arrays of the state.
      rules: As in `save`.
      keep: As in `save`.
    """
    assert jax.process_index() == 0, "orbax writes numpy's arrays on process 0 only"
    arrays = snapshot.arrays
    if not all(map(finite, arrays.values())):
        return
    index = {
        "number": number,
        "rules": json_round_trip(rules),
        "leaves": snapshot.leaves,
        "keys": snapshot.keys,
        "sha256": digest(arrays),
    }
    checkpoint, incomplete = folder / f"step-{number}", folder / f".step-{number}"
    try:
        shutil.rmtree(incomplete, ignore_errors=True)  # from a process that was killed
        incomplete.mkdir(parents=True)
        _write(incomplete / ARRAYS, {k: v for k, v in arrays.items() if v.size})
        index["files"] = _files(incomplete / ARRAYS)
        content = {"sha256": _hash(index), "index": index}
        (incomplete / INDEX).write_text(json.dumps(content, indent=2))
        if checkpoint.exists():
            before = checkpoint.with_name(checkpoint.name + REPLACED)
            shutil.rmtree(before, ignore_errors=True)
            os.replace(checkpoint, before)
        os.replace(incomplete, checkpoint)
    except (OSError, ValueError) as error:  # tensorstore raises ValueErrors
        raise BadInput(
            f"expected disk space for {checkpoint}, got {error}; free space "
            "or write to another folder"
        ) from error
    checkpoints = _checkpoints(folder)
    earlier = [path for path in checkpoints if _order(path) < (number, 0)]
    for path in set(checkpoints) - {checkpoint, *earlier[: keep - 1]}:
        shutil.rmtree(path, ignore_errors=True)


def load(
    folder: Path, rules: Mapping[str, Any], like: Any, warn: Callable[[str], object]
) -> tuple[int, Any]:
    """Return the number and the state of the last complete checkpoint.

    Args:
      folder: Folder of all checkpoints of the run.
      rules: Flags on which the result depends; BadInput is raised if the saved flags
        differ.
      like: A tree of arrays, or of their shapes and dtypes, like the saved state.
      warn: Called with a message about broken checkpoints, if there are any.
    """
    problems = []
    for checkpoint in _checkpoints(folder):
        try:
            index = _read_index(checkpoint)
            _check_agreement(checkpoint, index, rules, like)
            state = _read_state(checkpoint, index, like)
        except Broken as error:
            problems.append(f"{checkpoint.name}: {error}")
            continue
        if problems:
            warn(f"{'; '.join(problems)}; resuming from {checkpoint.name}")
        return index["number"], state
    raise BadInput(
        f"expected a complete checkpoint in {folder}, got "
        f"{'; '.join(problems) or 'none'}; pass the folder of a run that saved one"
    )


def shapes(folder: Path, key: str) -> list[Any]:
    """Return the shapes and dtypes of the leaves under a key of the last checkpoint.

    The state must be a mapping. Without a readable checkpoint, the list is empty.
    """
    for checkpoint in _checkpoints(folder):
        try:
            leaves = _read_index(checkpoint)["leaves"]
        except Broken:
            continue
        selected = [text for leaf, text in leaves.items() if leaf.startswith(f"{key}/")]
        return [_parse_shape(text) for text in selected]
    return []


def _parse_shape(text: str) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a leaf: the inverse of `shape_text`."""
    dtype, _, shape = text.partition("[")
    return jax.ShapeDtypeStruct(json.loads(f"[{shape}"), np.dtype(dtype))


def _read_index(checkpoint: Path) -> Any:
    """Read a checkpoint's index; raise Broken if it or a file has changed."""
    try:
        stored = json.loads((checkpoint / INDEX).read_text())
        index, sha256 = stored["index"], stored["sha256"]
        files = _files(checkpoint / ARRAYS)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Broken(f"its {INDEX} cannot be read") from error
    if sha256 != _hash(index):
        raise Broken(f"its {INDEX} is not what was saved")
    for name, saved in index["files"].items():
        if files.get(name) != saved:
            raise Broken(f"its {name} is not what was saved")
    return index


def _check_agreement(
    checkpoint: Path, index: Any, rules: Mapping[str, Any], like: Any
) -> None:
    """Raise BadInput if rules or leaves differ from those of the checkpoint."""
    leaves = {name: shape_text(leaf) for name, leaf in leaves_by_path(like).items()}
    pairs = (index["rules"], json_round_trip(rules)), (index["leaves"], leaves)
    for saved, current in pairs:
        for name in dict.fromkeys([*current, *saved]):
            if saved.get(name) != current.get(name):
                raise BadInput(
                    f"expected {name}={saved.get(name)} as in {checkpoint}, got "
                    f"{name}={current.get(name)}; pass the flags of that run, or the "
                    "folder of another run"
                )


def _read_state(checkpoint: Path, index: Any, like: Any) -> Any:
    arrays: dict[str, Any] = {
        name: None if math.prod(np.shape(leaf)) else np.empty(leaf.shape, leaf.dtype)
        for name, leaf in leaves_by_path(like).items()
    }
    arrays |= _restore(
        checkpoint / ARRAYS, [name for name, array in arrays.items() if array is None]
    )
    if digest(arrays) != index["sha256"]:
        raise Broken("its arrays are not those that were saved")
    for name, implementation in index["keys"].items():
        arrays[name] = jax.random.wrap_key_data(
            jax.device_put(arrays[name]), impl=implementation
        )
    leaves, tree = jax.tree.flatten(like)
    restored = [
        array if hasattr(leaf, "dtype") else type(leaf)(array)  # a Python number
        for leaf, array in zip(leaves, arrays.values(), strict=True)
    ]
    return jax.tree.unflatten(tree, restored)


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    path.mkdir()
    with _orbax() as (orbax, handler):
        handler.save(path.absolute(), args=orbax.args.PyTreeSave(dict(arrays)))
        handler.finalize(path.absolute())


def _restore(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    with _orbax() as (orbax, handler):
        restore_args = dict.fromkeys(names, orbax.RestoreArgs(restore_type=np.ndarray))
        arguments = orbax.args.PyTreeRestore(restore_args=restore_args)
        arrays = handler.restore(path.absolute(), args=arguments)
        return {name: arrays[name] for name in names}


@contextmanager
def _orbax() -> Iterator[tuple[Any, Any]]:
    """Yield orbax and its handler for trees, which do not wait for other processes.

    orbax's Checkpointer and CheckpointManager are not used: they rename the arrays
    before their index is written, and delete a checkpoint before they replace it.
    """
    # imported here: the import takes a second
    import orbax.checkpoint as orbax  # type: ignore[import-untyped]

    process = jax.process_index()
    handler = orbax.PyTreeCheckpointHandler(
        use_zarr3=True,
        use_compression=False,  # 8 % smaller for random numbers, but 4 times as slow
        multiprocessing_options=orbax.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix=f"only{process}",
        ),
    )
    with closing(handler):
        yield orbax, handler


def _files(folder: Path) -> dict[str, str]:
    """Return the hash of every file below a folder."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            hashes[path.relative_to(folder).as_posix()] = sha256
    return hashes


def _hash(index: Any) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first."""
    paths = [path for path in folder.glob("step-*") if STEP_FOLDER.fullmatch(path.name)]
    return sorted(paths, key=_order, reverse=True)


def _order(checkpoint: Path) -> tuple[int, int]:
    match = STEP_FOLDER.fullmatch(checkpoint.name)
    assert match
    return int(match[1]), 0 if match[2] else 1
