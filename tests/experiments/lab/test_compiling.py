"""What is compiled once is found again; what does not fit says what would."""

import json
from pathlib import Path

import jax
import pytest
from lab import compiling

from dml.types import BadInput
from tests.commands import PYTHON, output


def start(data):
    """Return what one start of a program tells of itself; it complains of nothing."""
    argv = PYTHON, "-m", "tests.experiments.lab.compiling_main"
    own = {"DML_DATA": str(data), "JAX_COMPILATION_CACHE_DIR": ""}
    return json.loads(output(*argv, PYTHONWARNINGS="error", **own))


def test_a_second_start_finds_the_programs_and_one_that_is_cut_is_made_anew(tmp_path):
    first = start(tmp_path)
    entries = list(Path(first["folder"]).rglob("*-cache"))
    assert first["hits"] == 0 < len(entries)
    assert tmp_path in entries[0].parents
    second = start(tmp_path)
    assert second["hits"] == len(entries)
    entries[0].write_bytes(entries[0].read_bytes()[:100])
    assert start(tmp_path)["hits"] == len(entries) - 1


def test_a_folder_that_cannot_be_is_bad_input_if_jax_has_none(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DML_DATA", str(tmp_path / "file"))
    folder = jax.config.jax_compilation_cache_dir
    assert compiling.enable_cache() == Path(folder)
    jax.config.update("jax_compilation_cache_dir", None)
    with pytest.raises(BadInput, match="expected a folder .*; set DML_DATA to one"):
        compiling.enable_cache()
    jax.config.update("jax_compilation_cache_dir", folder)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 128. TiB"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of\nmemory allocating 7"),
    ],
)
def test_too_little_memory_is_one_line_that_names_the_flags(error):
    with pytest.raises(BadInput) as caught, compiling.explain_memory_errors():
        raise error
    line = str(caught.value)
    assert "\n" not in line and line.endswith(f"pass {compiling.SMALLER_FLAGS}")
    for flag in ("--batch", "--accumulate", "--remat", "--zero"):
        assert flag in line


def test_other_errors_stay_as_they_are():
    for error in jax.errors.JaxRuntimeError("INTERNAL: a bug"), ValueError("other"):
        with pytest.raises(type(error)) as caught, compiling.explain_memory_errors():
            raise error
        assert caught.value is error
