"""Checkpoints of a run: trees of arrays, written by orbax.

Each folder step-N has the files of orbax and an index: the rules of the run, the
leaves, a hash of all bits, and a hash of each file. The files are checked before orbax
reads them, because orbax reports broken files only after the read, from its threads.
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
from dml.runs.records import plain
from dml.types import BadInput

INDEX, ARRAYS = "index.json", "arrays"
REPLACED = ".replaced"  # suffix of an earlier step-N until the new folder is complete
NAME = re.compile(rf"step-(\d+)({re.escape(REPLACED)})?")


class Broken(Exception):
    """Raised for a checkpoint whose bits are not those that were saved."""


def save(
    folder: Path, number: int, state: Any, rules: Mapping[str, Any], keep: int = 2
) -> None:
    """Save a state as step-<number>; rank 0 only.

    After the first save, a complete checkpoint exists at every moment. A state with a
    number that is not finite is not saved.

    Args:
      folder: Folder of all checkpoints of the run.
      number: Number of the step; later checkpoints, from before a resume at an earlier
        step, are deleted.
      state: A tree of arrays, random keys and numbers.
      rules: Flags on which the bits of the run depend.
      keep: Number of checkpoints to keep.
    """
    assert jax.process_index() == 0, "orbax writes numpy's arrays on process 0 only"
    leaves = named(state)
    arrays = {name: _bits(leaf) for name, leaf in leaves.items()}
    if not all(map(_finite, arrays.values())):
        return
    index = {
        "number": number,
        "rules": plain(rules),
        "leaves": {name: _kind(leaf) for name, leaf in leaves.items()},
        "keys": {
            name: str(jax.random.key_impl(leaf))
            for name, leaf in leaves.items()
            if _is_key(leaf)
        },
        "sha256": digest(arrays),
    }
    place, part = folder / f"step-{number}", folder / f".step-{number}"
    try:
        shutil.rmtree(part, ignore_errors=True)  # from a process that was killed
        part.mkdir(parents=True)
        _write(part / ARRAYS, {k: v for k, v in arrays.items() if v.size})
        index["files"] = _files(part / ARRAYS)
        content = {"sha256": _hash(index), "index": index}
        (part / INDEX).write_text(json.dumps(content, indent=2))
        if place.exists():
            before = place.with_name(place.name + REPLACED)
            shutil.rmtree(before, ignore_errors=True)
            os.replace(place, before)
        os.replace(part, place)
    except (OSError, ValueError) as error:  # tensorstore's are ValueErrors
        raise BadInput(
            f"expected disk space for {place}, got {error}; free space or write to "
            "another folder"
        ) from error
    known = _places(folder)
    earlier = [path for path in known if _order(path) < (number, 0)]
    for path in set(known) - {place, *earlier[: keep - 1]}:
        shutil.rmtree(path, ignore_errors=True)


def load(
    folder: Path, rules: Mapping[str, Any], like: Any, say: Callable[[str], object]
) -> tuple[int, Any]:
    """Return the number and the state of the last complete checkpoint.

    Args:
      folder: Folder of all checkpoints of the run.
      rules: Flags on which the bits depend; others than those saved raise BadInput.
      like: A tree of arrays, or of their shapes and dtypes, like the saved state.
      say: Called with a message about broken checkpoints, if there are any.
    """
    problems = []
    for place in _places(folder):
        try:
            index = _index(place)
            _agree(place, index, rules, like)
            state = _read(place, index, like)
        except Broken as error:
            problems.append(f"{place.name}: {error}")
            continue
        if problems:
            say(f"{'; '.join(problems)}; resuming from {place.name}")
        return index["number"], state
    raise BadInput(
        f"expected a complete checkpoint in {folder}, got "
        f"{'; '.join(problems) or 'none'}; pass the folder of a run that saved one"
    )


def shapes(folder: Path, name: str) -> list[Any]:
    """Return the shapes and dtypes of a list in the last complete checkpoint."""
    for place in _places(folder):
        try:
            kinds = _index(place)["leaves"]
        except Broken:
            continue
        selected = [kind for leaf, kind in kinds.items() if leaf.startswith(f"{name}/")]
        return [_shape(kind) for kind in selected]
    return []


def _shape(kind: str) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a leaf: the inverse of `_kind`."""
    dtype, _, shape = kind.partition("[")
    return jax.ShapeDtypeStruct(json.loads(f"[{shape}"), np.dtype(dtype))


def named(tree: Any) -> dict[str, Any]:
    """Return a tree's leaves by their paths, such as optimizer/0/mu/dense/kernel."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _index(place: Path) -> Any:
    """Read a checkpoint's index; raise Broken if it or a file has changed."""
    try:
        stored = json.loads((place / INDEX).read_text())
        index, sha256 = stored["index"], stored["sha256"]
        files = _files(place / ARRAYS)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Broken(f"its {INDEX} cannot be read") from error
    if sha256 != _hash(index):
        raise Broken(f"its {INDEX} is not what was saved")
    for name, saved in index["files"].items():
        if files.get(name) != saved:
            raise Broken(f"its {name} is not what was saved")
    return index


def _agree(place: Path, index: Any, rules: Mapping[str, Any], like: Any) -> None:
    """Raise BadInput if rules or leaves differ from those of the checkpoint."""
    kinds = {name: _kind(leaf) for name, leaf in named(like).items()}
    for saved, own in ((index["rules"], plain(rules)), (index["leaves"], kinds)):
        for name in dict.fromkeys([*own, *saved]):
            if saved.get(name) != own.get(name):
                raise BadInput(
                    f"expected {name}={saved.get(name)} as in {place}, got "
                    f"{name}={own.get(name)}; pass the flags of that run, or the "
                    "folder of another run"
                )


def _read(place: Path, index: Any, like: Any) -> Any:
    arrays: dict[str, Any] = {
        name: None if math.prod(np.shape(leaf)) else np.empty(leaf.shape, leaf.dtype)
        for name, leaf in named(like).items()
    }
    arrays |= _restore(
        place / ARRAYS, [name for name, array in arrays.items() if array is None]
    )
    if digest(arrays) != index["sha256"]:
        raise Broken("its arrays are not those that were saved")
    for name, kind in index["keys"].items():
        arrays[name] = jax.random.wrap_key_data(jax.device_put(arrays[name]), impl=kind)
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
        kinds = dict.fromkeys(names, orbax.RestoreArgs(restore_type=np.ndarray))
        arguments = orbax.args.PyTreeRestore(restore_args=kinds)
        arrays = handler.restore(path.absolute(), args=arguments)
        return {name: arrays[name] for name in names}


@contextmanager
def _orbax() -> Iterator[tuple[Any, Any]]:
    """Yield orbax and its handler of trees, for this process only.

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


def _bits(leaf: Any) -> np.ndarray:
    return np.asarray(
        jax.device_get(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    )


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", np.dtype(int))
    return jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def _finite(array: np.ndarray) -> bool:
    inexact = jax.dtypes.issubdtype(array.dtype, np.inexact)  # also bfloat16
    return not inexact or bool(np.isfinite(array).all())


def _kind(leaf: Any) -> str:
    """Return a leaf's dtype and shape, such as float32[2, 3]."""
    dtype = leaf.dtype if hasattr(leaf, "dtype") else type(leaf).__name__
    return f"{dtype}{list(np.shape(leaf))}"


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


def _places(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first."""
    paths = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(paths, key=_order, reverse=True)


def _order(place: Path) -> tuple[int, int]:
    match = NAME.fullmatch(place.name)
    assert match
    return int(match[1]), 0 if match[2] else 1
