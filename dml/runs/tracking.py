"""Writers of runs to Weights & Biases, MLflow and Trackio.

The flags of a command are the config of its run; the numbers of a row are metrics at
the row's step. No data leave the machine unless the environment names a server:
WANDB_MODE=online, MLFLOW_TRACKING_URI, or TRACKIO_SPACE_ID. Chapter: docs/running.md.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dml import extras
from dml.runs.results import DONE, FAILED, INTERRUPTED
from dml.runs.rows import numbers
from dml.runs.writers import Row, Writer
from dml.types import BadInput

PROJECT = "dml"
MLFLOW_BATCH = 1000  # largest number of metrics that MLflow accepts at once
INTERVAL = 10.0  # seconds between writes to MLflow
# of the packages: no reports of use and of errors, unless the user sets another value
NO_REPORTS = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}


class Tracked(NamedTuple):
    """Functions of a run of a tracker."""

    log: Callable[[dict[str, Any], int], None]  # metrics and their step
    summary: Callable[[dict[str, Any], int], None]  # numbers, and the last step
    close: Callable[[str], None]  # with DONE, FAILED or INTERRUPTED


def check_installed(name: str) -> None:
    """Raise BadInput if the package of a tracker is missing; it is not imported."""
    if find_spec(name) is None:
        raise BadInput(extras.explain(ModuleNotFoundError(name=name)))


@contextmanager
def tracker(name: str, path: Path, config: Mapping[str, Any]) -> Iterator[Writer]:
    """Write rows and the summary to a new run, closed with the status of the run.

    Args:
      name: Name in TRACKERS.
      path: Run folder, whose last two parts name the run.
      config: Flags.
    """
    for key, value in NO_REPORTS.items():
        os.environ.setdefault(key, value)
    run_name = "/".join(path.resolve().parts[-2:])
    tracked = TRACKERS[name](extras.load(name), run_name, path, config)
    last_step = 0

    def row(row: Row) -> None:
        nonlocal last_step
        step = row.get("step")
        last_step = last_step + 1 if step is None else step
        tracked.log(numbers(row), last_step)

    status = FAILED
    try:
        yield Writer(row, lambda summary: tracked.summary(numbers(summary), last_step))
        status = DONE
    except KeyboardInterrupt:
        status = INTERRUPTED
        raise
    finally:
        tracked.close(status)


def prefixed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a summary as metrics of other names than those of rows."""
    return {f"summary/{name}": value for name, value in values.items()}


def wandb(module: Any, name: str, path: Path, config: Mapping[str, Any]) -> Tracked:
    """Start a run in `path`/wandb, which `wandb sync` uploads."""
    quiet = module.Settings(silent=True, console="off", disable_git=True)
    mode = os.environ.get("WANDB_MODE", "offline")
    run = module.init(
        project=PROJECT,
        name=name,
        dir=str(path),
        config=dict(config),
        mode=mode,
        settings=quiet,
    )
    # not log(step=): W&B drops rows whose step is smaller than that of an earlier row
    run.define_metric("*", step_metric="step")
    return Tracked(
        lambda values, step: run.log({"step": step} | values),
        lambda values, step: run.summary.update(values),
        lambda status: run.finish(exit_code=int(status != DONE)),
    )


def mlflow(module: Any, name: str, path: Path, config: Mapping[str, Any]) -> Tracked:
    """Start a run at MLFLOW_TRACKING_URI, by default a file of the current folder."""
    experiment = module.set_experiment(PROJECT).experiment_id
    client, entities = module.MlflowClient(), module.entities
    run_id = client.create_run(experiment, run_name=name).info.run_id
    params = [entities.Param(key, str(value)) for key, value in config.items()]
    client.log_batch(run_id, params=params)
    pending: list[Any] = []  # a batch, because a write takes milliseconds
    last_write = time.monotonic()

    def write() -> None:
        nonlocal last_write
        for start in range(0, len(pending), MLFLOW_BATCH):
            client.log_batch(run_id, pending[start : start + MLFLOW_BATCH])
        pending.clear()
        last_write = time.monotonic()

    def log(values: dict[str, Any], step: int) -> None:
        now = int(time.time() * 1000)
        for key, value in values.items():
            name = re.sub(r"[^\w/.\- :]", "_", key)  # other characters are refused
            pending.append(entities.Metric(name, value, now, step))
        if len(pending) >= MLFLOW_BATCH or time.monotonic() - last_write > INTERVAL:
            write()

    def close(status: str) -> None:
        write()
        ends = {DONE: "FINISHED", FAILED: "FAILED", INTERRUPTED: "KILLED"}
        client.set_terminated(run_id, ends[status])

    return Tracked(log, lambda values, step: log(prefixed(values), step), close)


def trackio(module: Any, name: str, path: Path, config: Mapping[str, Any]) -> Tracked:
    """Start a run in the folder TRACKIO_DIR, or in Trackio's cache."""
    options = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    with redirect_stdout(sys.stderr):
        run = module.init(project=PROJECT, name=name, config=dict(config), **options)

    def close(status: str) -> None:
        with redirect_stdout(sys.stderr):
            if status != DONE:  # Trackio's runs have no status
                run.alert(status)
            module.finish()  # not run.finish(), which is repeated at exit

    return Tracked(
        lambda values, step: run.log(values, step=step),
        lambda values, step: run.log(prefixed(values), step=step),
        close,
    )


TRACKERS = {"wandb": wandb, "mlflow": mlflow, "trackio": trackio}
