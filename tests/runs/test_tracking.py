"""Trackers: rows, steps, summary and status, with stand-ins and the real packages."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest

from dml import sim
from dml.runs import tracking, writers
from dml.runs.results import DONE, FAILED, INTERRUPTED
from dml.types import BadInput

CONFIG = {"lr": 0.1, "name": "a", "none": None}
ROWS = [
    {"step": 10, "loss": 0.5, "way": "text"},
    {"loss": 0.25},
    {"step": 3, "loss": 1},
]
LOGGED = [(10, {"loss": 0.5}), (11, {"loss": 0.25}), (3, {"loss": 1})]
SUMMARY = {"loss": 0.25, "status": "done"}
ENDS = {DONE: None, FAILED: FloatingPointError, INTERRUPTED: KeyboardInterrupt}


def wandb(log):
    """Return a stand-in of the calls that are made of wandb."""

    def init(**options):
        log.update(options, rows=[])
        return SimpleNamespace(
            define_metric=lambda name, step_metric: None,
            log=lambda row: log["rows"].append((row.pop("step"), row)),
            summary=SimpleNamespace(update=lambda row: log.update(summary=row)),
            finish=lambda exit_code: log.update(ended=exit_code),
        )

    return SimpleNamespace(init=init, Settings=dict)


def mlflow(log):
    """Return a stand-in of the calls that are made of MLflow."""
    rows = []

    def log_batch(run, metrics=(), params=()):
        assert run == "run" and len(metrics) <= 1000
        if params:
            log["config"] = dict(params)
        rows.extend((step, {key: value}) for key, value, _, step in metrics)

    def create_run(experiment, run_name):
        log.update(project=experiment, name=run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id="run"))

    def set_terminated(run, status):
        *log["rows"], (_, log["summary"]) = rows
        log.update(ended=status)

    client = SimpleNamespace(
        create_run=create_run,
        log_batch=log_batch,
        set_terminated=set_terminated,
    )
    return SimpleNamespace(
        set_experiment=lambda name: SimpleNamespace(experiment_id=name),
        MlflowClient=lambda: client,
        entities=SimpleNamespace(Metric=lambda *a: a, Param=lambda *a: a),
    )


def trackio(log):
    """Return a stand-in of the calls that are made of Trackio."""
    rows = []

    def init(project, name, config, **options):
        print("Trackio project initialized")
        log.update(project=project, name=name, config=config, ended=[])
        return SimpleNamespace(
            log=lambda row, step: rows.append((step, row)),
            alert=log["ended"].append,
        )

    def finish():
        log.update(rows=rows[:-1], summary=rows[-1][1])

    return SimpleNamespace(init=init, finish=finish)


STAND_INS = {"wandb": wandb, "mlflow": mlflow, "trackio": trackio}
STATUS = {  # of a stand-in, by the end of the run
    "wandb": {DONE: 0, FAILED: 1, INTERRUPTED: 1},
    "mlflow": {DONE: "FINISHED", FAILED: "FAILED", INTERRUPTED: "KILLED"},
    "trackio": {DONE: [], FAILED: ["failed"], INTERRUPTED: ["interrupted"]},
}


@pytest.fixture(params=tracking.TRACKERS)
def name(request):
    return request.param


@pytest.fixture
def log(name, monkeypatch):
    """Return what a stand-in of the tracker gets."""
    log = {}
    for variable in ("WANDB_MODE", *tracking.NO_REPORTS):
        monkeypatch.setenv(variable, "")  # so that it is removed at the end
        monkeypatch.delenv(variable)
    stand_in = STAND_INS[name](log)
    stand_in.__spec__ = MagicMock()
    monkeypatch.setitem(sys.modules, name, stand_in)
    return log


def write(name, path, error=None):
    with tracking.tracker(name, path, CONFIG) as writer:
        for row in ROWS:
            writer.row(row)
        writer.summary(SUMMARY)
        if error:
            raise error


@pytest.mark.parametrize("end", ENDS)
def test_a_tracker_gets_flags_rows_summary_and_the_status(name, log, end, tmp_path):
    if ENDS[end]:
        with pytest.raises(ENDS[end]):
            write(name, tmp_path / "linear" / "one", ENDS[end])
    else:
        write(name, tmp_path / "linear" / "one")
    texts = name == "mlflow"
    assert log["config"] == {k: str(v) if texts else v for k, v in CONFIG.items()}
    assert (log["project"], log["name"]) == ("dml", "linear/one")
    assert log["rows"] == LOGGED
    prefix = "" if name == "wandb" else "summary/"
    assert log["summary"] == {f"{prefix}loss": 0.25}
    assert log["ended"] == STATUS[name][end]
    assert log.get("mode", "offline") == "offline"
    assert tracking.NO_REPORTS.items() <= os.environ.items()


def test_a_tracker_prints_nothing_to_stdout(name, log, tmp_path, capsys):
    write(name, tmp_path)
    assert capsys.readouterr().out == ""


def test_wandb_is_online_only_if_the_environment_requests_it(tmp_path, monkeypatch):
    log = {}
    monkeypatch.setitem(sys.modules, "wandb", wandb(log))
    monkeypatch.setenv("WANDB_MODE", "online")
    write("wandb", tmp_path)
    assert log["mode"] == "online"


def test_names_that_mlflow_refuses_are_replaced(tmp_path, monkeypatch):
    log = {}
    monkeypatch.setitem(sys.modules, "mlflow", mlflow(log))
    with tracking.tracker("mlflow", tmp_path, CONFIG) as writer:
        writer.row({"share (%)": 1, "α/β": 2})
        writer.summary({"loss": 1})
    assert log["rows"] == [(1, {"share ___": 1}), (1, {"α/β": 2})]


def test_mlflow_gets_rows_in_batches(tmp_path, monkeypatch):
    log = {}
    stand_in = mlflow(log)
    client = stand_in.MlflowClient()
    client.log_batch = Mock(wraps=client.log_batch)
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    monkeypatch.setattr(tracking, "INTERVAL", math.inf)
    with tracking.tracker("mlflow", tmp_path, CONFIG) as writer:
        for step in range(2001):
            writer.row({"step": step, "loss": step, "norm": 0})
        writer.summary({"loss": 1})
    assert len(log["rows"]) == 2 * 2001
    assert client.log_batch.call_count == 1 + 4 + 1  # flags, rows, the end


def test_only_rank_0_starts_a_run(name, log, tmp_path):
    def program(comm):
        tracker = tracking.tracker(name, tmp_path / str(comm.rank), CONFIG)
        with writers.rank_0_writer(comm.rank, tracker) as writer:
            writer.row({"loss": comm.rank})
            writer.summary({"loss": comm.rank})

    sim.run(program, 3)
    assert log["name"].endswith("/0")
    assert log["rows"] == [(1, {"loss": 0})]


def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match=rf"the package {name}, got none; .*\[track\]'"):
        tracking.check_installed(name)


READ = {
    "wandb": """
import struct
import wandb
from pathlib import Path
wandb.teardown()  # its process has written the file
from wandb.proto.wandb_internal_pb2 import Record
(file,) = Path("run/wandb").glob("offline-run-*/run-*.wandb")
data, rows, summary, ended, config = file.read_bytes(), [], {}, None, {}
assert len(data) < 2**15  # one block of LevelDB's log format, with a header
at = 7
while at < len(data):
    _, length, kind = struct.unpack("<IHB", data[at : at + 7])
    record = Record.FromString(data[at + 7 : at + 7 + length])
    at += 7 + length
    name = lambda item: item.key or "/".join(item.nested_key)
    if record.HasField("history"):
        row = {name(one): json.loads(one.value_json) for one in record.history.item}
        rows.append([row["step"], {"loss": row["loss"]}])
    for one in record.summary.update:
        summary[name(one)] = json.loads(one.value_json)
    for one in record.run.config.update:
        config[one.key] = json.loads(one.value_json)
    if record.HasField("exit"):
        ended = record.exit.exit_code
summary = {"loss": summary["loss"]}
""",
    "mlflow": """
import mlflow
client = mlflow.MlflowClient()
(run,) = client.search_runs([client.get_experiment_by_name("dml").experiment_id])
ended, config, rows = run.info.status, run.data.params, []
history = client.get_metric_history(run.info.run_id, "loss")
rows = [[one.step, {"loss": one.value}] for one in history]
(last,) = client.get_metric_history(run.info.run_id, "summary/loss")
summary = {"summary/loss": last.value}
assert run.info.end_time and run.info.run_name == "one/run"
""",
    "trackio": """
import trackio
from trackio.sqlite_storage import SQLiteStorage
(run,) = trackio.Api().runs("dml")
ended, config = [one["title"] for one in run.alerts()], run.config
logs = SQLiteStorage.get_logs("dml", run.name)
rows = [[one["step"], {"loss": one["loss"]}] for one in logs if "loss" in one]
(summary,) = [one for one in logs if "summary/loss" in one]
summary = {"summary/loss": summary["summary/loss"]}
""",
}
PROGRAM = """
import json, sys
from pathlib import Path
from dml.runs import tracking
from tests.runs import test_tracking as test
name, end = sys.argv[1:]
assert not {*tracking.TRACKERS} & {*sys.modules}
Path("run").mkdir()
try:
    test.write(name, Path("run"), test.ENDS[end])
except (FloatingPointError, KeyboardInterrupt):
    pass
"""
LAST = "print(json.dumps([config, rows, summary, ended]))"


@pytest.mark.parametrize("end", ENDS)
def test_the_package_has_the_run_offline(name, end, tmp_path):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"pip install -e .[track]: {name}")
    folder = tmp_path / "one"
    folder.mkdir()
    root = str(tracking.Path(__file__).parents[2])
    settings = {"HOME": str(folder), "PYTHONPATH": root, "PATH": os.environ["PATH"]}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM + READ[name] + LAST, name, end],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    config, rows, summary, ended = json.loads(run.stdout.splitlines()[-1])
    assert {"lr": config["lr"], "name": config["name"]} in (
        {"lr": 0.1, "name": "a"},
        {"lr": "0.1", "name": "a"},
    )
    assert [tuple(row) for row in rows] == LOGGED or sorted(
        map(tuple, rows), key=str
    ) == sorted(LOGGED, key=str)
    assert list(summary.values()) == [0.25]
    assert ended == STATUS[name][end]
