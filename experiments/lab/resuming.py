"""The run folder of a command: new, overwritten, or of the run that --resume continues.

--resume=RUN takes the flags of the run from its config.json. Further flags replace
them; a flag that changes the results of the run is refused when its checkpoint is read.
"""

from pathlib import Path
from typing import Any

from absl import flags

from dml.runs import folder, results
from dml.types import BadInput

# Flags of one start of a run, which a resume does not take from config.json.
OF_A_START = ("out", "resume", "overwrite", "record", "replay", "events", "help")


def complete(values: Any) -> None:
    """Set the flags that the command line lacks to those of the run to resume."""
    if "resume" not in values or not values.resume:
        return
    config = Path(values.resume, results.CONFIG)
    if not config.exists():
        raise BadInput(
            f"expected the folder of a run with checkpoints in --resume, got "
            f"{values.resume} without {results.CONFIG}; correct the path"
        )
    saved = results.check_object(results.read_object(config).get("flags"), config)
    for name, value in saved.items():
        if name not in values or name in OF_A_START or values[name].present:
            continue
        if value is None or value == values[name].value:
            continue  # not `present`: a default that depends on others stays one
        try:
            values[name].parse(value)
        except (flags.Error, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"expected a value of --{name} in {config}, got {value!r} ({error}); "
                f"correct it, or pass --{name}"
            ) from error


def check_folder(values: Any) -> None:
    """Raise BadInput if --out has a run that is neither resumed nor overwritten."""
    resumable = "resume" in values
    resume = values.resume if resumable else None
    if resume and values.overwrite and (not values.out or resumes(values, values.out)):
        raise BadInput(
            f"expected --resume or --overwrite, got both for {resume}; pass one"
        )
    if values.out and not resumes(values, values.out):
        folder.check_unused(Path(values.out), values.overwrite, resumable)


def resumes(values: Any, path: str | Path) -> bool:
    """Return whether a run folder is that of --resume."""
    if "resume" not in values or not values.resume:
        return False
    return Path(values.resume).resolve() == Path(path).resolve()
