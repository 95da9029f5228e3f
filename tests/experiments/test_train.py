"""Problems, strategies, reducers and networks of a user's file."""

import hashlib
import json
import sys

import numpy as np
import pytest
import train
import vision
from studies.matrix.cells import cell
from studies.matrix.methods import find_method

from dml import extend
from dml.data.text.corpora import corpus_files
from dml.problems import find_problem
from dml.types import BadInput
from tests.commands import PYTHON, ROOT, command
from tests.experiments.run_folder import read_rows
from tests.strategies.small import alone

MINE = """
from pathlib import Path

import numpy as np
import optax

import dml
from dml.models.networks.mlp import mlp

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X @ np.arange(4, dtype=np.float32)

def make():
    def gradient(params, rows):
        error = X[rows] @ np.asarray(params) - Y[rows]  # of NumPy, not of JAX
        return float((error**2).mean()) / 2, X[rows].T @ error / len(rows)
    def evaluate(params):
        return {"error": float(((X @ params - Y) ** 2).mean())}
    return dml.Problem(np.zeros(4, np.float32), 60, gradient, evaluate)

def descend(problem, batches, update, *, comm, timer, reducer, skip=0):
    params, state = problem.params, update.init(problem.params)
    for number, batch in enumerate(batches, 1):
        rows = np.array_split(batch, comm.size)[comm.rank]
        loss, gradient = problem.gradient(params, problem.take(rows))
        buffer = np.append(gradient, loss).astype(np.float32)
        buffer *= np.float32(len(rows) / len(batch))
        reducer.reduce(comm, buffer, None)
        change, state = update.update(buffer[:-1], state, params)
        params = optax.apply_updates(params, change)
        yield dml.Step(
            number, float(buffer[-1]), lambda: params, len(batch), timer.lap(), 0
        )

def needs(problem, batches, update, *, comm, timer, distance):
    yield

def network(shape, classes):
    return mlp(shape, classes, widths=(8,))

def opposite(allreduce):
    def reduce(comm, buffer, state):
        allreduce(comm, buffer)
        buffer[:-1] *= -1
    return dml.Reducer(lambda layout: None, reduce)

def reverse(part):
    part.rows[part.attackers] = -part.rows[part.honest].sum(axis=0)

def double(comm, buffer, op=np.add):
    dml.allreduce(comm, buffer, op, "ring")
    buffer *= 2

def short():
    def gradient(params, rows):
        return 0.0, np.zeros(3, np.float32)
    return make()._replace(gradient=gradient)

def float16():
    def encode(values, code, seed):
        code[:] = values.astype(np.float16).view(np.uint8)
    def add(code, total):
        total += code.view(np.float16)
    return dml.Codec(lambda length: 2 * length, encode, add)

def stale(choice, workers):
    return dml.Consistency(choice.staleness, pull_period=float("inf"))

def waiting(choice, workers):
    return dml.Consistency(backups=workers)

def files():
    return Path(__file__).parent / "text.txt"
"""


ATTACKED = ["--problem=./mine.py:make", "--batch=20", "--attackers=1"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Write mine.py; return run(*flags) -> losses, and the summary of rank 0."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    extend.load.cache_clear()

    def call(*argv, command=train, out="run"):
        given = [f"--out={tmp_path / out}", "--timeline=0"]
        summary = command.main(["train.py", "--steps=12", *given, *argv])[0]
        return [row["loss"] for row in read_rows(tmp_path / out)], summary

    return call


def test_own_problem_on_ranks_is_bit_identical_to_serial(run):
    flags = ["--problem=./mine.py:make", "--batch=20"]
    _, serial = run(*flags, "--strategy=serial", "--options=accumulate=3", out="serial")
    _, ranks = run(*flags, "--simulate=3", "--allreduce=star", out="ranks")
    assert ranks["error"] == serial["error"] < 0.5


def test_a_step_size_alone_is_that_of_sgd(run):
    flags = ["--problem=./mine.py:make", "--lr=0.05"]
    alone, _ = run(*flags, out="alone")
    sgd, _ = run(*flags, "--optimizer=sgd", out="sgd")
    momentum, _ = run(*flags, "--optimizer=momentum", out="momentum")
    assert alone == sgd != momentum


def test_virtual_ranks_measure_virtual_seconds(run):
    flags = ["--problem=./mine.py:make", "--simulate=3", "--network=1,0,0"]
    _, summary = run(*flags, "--allreduce=star", "--steps=2")
    assert summary["seconds"] == 8  # two messages to and two from rank 0 per update


def test_own_strategy_receives_a_reducer(run):
    """It computes what `synchronous` computes, up to rounding of the update."""
    flags = ["--problem=./mine.py:make", "--batch=20", "--simulate=3"]
    own, _ = run(*flags, "--strategy=./mine.py:descend", out="own")
    built_in, _ = run(*flags, out="synchronous")
    np.testing.assert_allclose(own, built_in, rtol=1e-5)


@pytest.mark.parametrize("transport", ["gather", "scatter", "ring"])
def test_an_own_code_has_every_transport_and_feedback(run, transport):
    flags = ["--problem=linear", "--simulate=3", "--allreduce=ring"]
    code = f"--reduce=./mine.py:float16@{transport}"
    exact, whole = run(*flags, out="exact")
    plain, coded = run(*flags, code, out="code")
    feedback, _ = run(*flags, f"{code}+feedback", out="feedback")
    assert exact != plain != feedback != exact
    np.testing.assert_allclose(plain, exact, rtol=1e-2)
    np.testing.assert_allclose(feedback, exact, rtol=1e-2)
    if transport != "gather":
        assert coded["words_sent"] < 0.6 * whole["words_sent"]
    with pytest.raises(BadInput, match="--reduce=exact, order_free or a robust"):
        run(*flags, code, "--strategy=local", "--options=every=2", out="local")


def test_an_own_consistency_has_the_losses_of_ssp(run):
    flags = ["--problem=completion", "--strategy=server", "--simulate=4"]
    flags += ["--staleness=2", "--straggle=pareto:1e-3,2"]
    own, _ = run(*flags, "--consistency=./mine.py:stale", out="own")
    assert own == run(*flags, "--consistency=ssp", out="ssp")[0]
    assert own != run(*flags[:3], "--consistency=bsp", out="bsp")[0]


def test_the_configuration_has_the_hash_of_own_files(run, tmp_path):
    run("--problem=./mine.py:make", "--steps=1")
    config = json.loads((tmp_path / "run/config.json").read_text())
    sha256 = hashlib.sha256(MINE.encode()).hexdigest()
    assert config["own_files"][str(tmp_path / "mine.py")] == sha256


def test_an_own_attack_stops_a_mean_but_not_a_median(run):
    own = [*ATTACKED, "--attack=./mine.py:reverse", "--simulate=4"]
    _, stopped = run(*own, out="mean")
    assert stopped["deviation"] == pytest.approx(1)  # the mean is 0
    _, median = run(*own, "--reduce=median", out="median")
    _, honest = run(*own[:2], "--simulate=4", out="honest")
    assert median["deviation"] < 0.9
    assert max(median["error"], honest["error"]) < 0.1 * stopped["error"]


@pytest.mark.parametrize("attack", ("nan", "alie:1", "late:2", "sign_flip"))
def test_servers_are_attacked_by_the_last_workers(run, attack):
    own = [*ATTACKED, "--strategy=server", "--simulate=5", "--servers=1"]
    _, summary = run(*own, f"--attack={attack}", "--reduce=median")
    assert summary["error"] < 3  # 20.6 at the start


def test_own_reducer_changes_the_gradient(run):
    losses, _ = run("--problem=./mine.py:make", "--reduce=./mine.py:opposite")
    assert losses[-1] > losses[0]


@pytest.mark.parametrize(
    "strategy, options",
    [
        ("local", "every=4"),
        ("poseidon", "scheme=factors,bucket_mb=1.0"),
        ("owned", "clip=1.0"),
        ("server", ""),
        ("coded", "code=cyclic:1"),
        ("zeno", "faulty=2"),
        ("gradient_coding", "code=cyclic:1"),
        ("mesh", ""),
        ("scan", "every=3"),
        ("sharded", ""),
    ],
)
def test_strategies_of_the_table_train(run, strategy, options):
    on_ranks = ("local", "owned", "poseidon", "server", "coded", "zeno")
    on_ranks += ("gradient_coding",)
    ranks = ["--simulate=3"] if strategy in on_ranks else []
    flags = [f"--strategy={strategy}", f"--options={options}", "--evaluate_every=4"]
    losses, summary = run("--steps=24", *flags, *ranks)
    assert losses[-1] < losses[0] and summary["accuracy"] > 0.3


@pytest.mark.parametrize("strategy", ["hogwild", "average"])
def test_strategies_of_epochs_train(run, strategy):
    losses, _ = run("--problem=completion", f"--strategy={strategy}", "--steps=3")
    assert len(losses) == 3 and losses[-1] < losses[0]


def test_own_rows_and_columns_of_the_matrix(run):
    names = ["serial", "synchronous star", "synchronous ./mine.py:double"]
    names.append("./mine.py:descend")
    problem = find_problem("./mine.py:make")
    rows = [cell(alone(), find_method(name), problem, 4) for name in names]
    assert rows[0]["sha256"] == rows[1]["sha256"] != rows[2]["sha256"]
    np.testing.assert_allclose(rows[3]["loss"], rows[0]["loss"], rtol=1e-5)


def test_vision_trains_an_own_network(run):
    losses, _ = run("--model=./mine.py:network", "--batch=32", command=vision)
    assert losses[-1] < losses[0]


def test_own_corpus(run, tmp_path):
    (tmp_path / "text.txt").write_text("a b c")
    assert corpus_files("./mine.py:files") == [tmp_path / "text.txt"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--problem=./mine.py:short"], r"gradient with shapes \[\(4,\)\]"),
        (["--problem=./mine.py:files"], "expected a Problem from .*, got a PosixPath"),
        (["--problem=./mine.py:network"], r"expected a function network\(\)"),
        (["--strategy=./mine.py:make"], r"expected a function make\(problem, batches"),
        (["--strategy=./mine.py:needs"], "value of distance .*--options=distance=VAL"),
        (["--options=acumulate=2"], "expected options .*accumulate=VALUE"),
        (
            ["--options=accumulate=two"],
            "a whole number from 1 to 1000000 for accumulate of --strategy=synchronous",
        ),
        (
            ["--strategy=server", "--simulate=4", "--consistency=./mine.py:waiting"],
            "fewer backups than the 3 workers from ./mine.py:waiting, got 3",
        ),
        (["--consistency=./mine.py:make"], r"function make\(choice, workers\)"),
        (["--reduce=./mine.py:make@ring"], "expected a Codec from ./mine.py:make"),
        (["--reduce=./mine.py:make"], r"expected a function make\(allreduce\)"),
        (["--strategy=mesh", "--problem=./mine.py:make"], "a problem with model"),
    ],
)
def test_bad_input_is_named(run, flags, message):
    with pytest.raises(BadInput, match=message):
        run(*flags)


COMPUTED_AT_IMPORT = """
import jax
import jax.numpy as jnp
import numpy as np
import dml

START = jnp.zeros(3)  # initialises JAX's devices

def make():
    model = dml.Model(
        lambda key: START,
        lambda params, rows: ((params - rows.mean()) ** 2).sum(),
        lambda params, rows: {},
    )
    take = lambda index: np.float32(index)
    return dml.model_problem(model, jax.device_get(START), examples=8, take=take)
"""


def test_devices_are_chosen_before_a_file_that_uses_them_is_imported(tmp_path):
    (tmp_path / "early.py").write_text(COMPUTED_AT_IMPORT)
    flags = "--problem=./early.py:make", "--strategy=mesh", "--simulate=2", "--steps=2"
    flags += ("--timeline=0",)
    script = ROOT / "experiments" / "train.py"
    ended = command(PYTHON, script, *flags, f"--out={tmp_path}/run", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    wrong = "--problem=./early.py:other", *flags[1:]
    ended = command(PYTHON, script, *wrong, f"--out={tmp_path}/wrong", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and "such as make" in ended.stderr


@pytest.mark.parametrize("flag", ["--lr=0.1", "--optimizer=adam"])
def test_a_strategy_without_an_optimizer_refuses_its_flags(flag, tmp_path):
    argv = ["train.py", "--problem=columns", "--steps=2", f"--out={tmp_path}"]
    with pytest.raises(BadInput, match="with an optimizer for --.*, got --strategy=lb"):
        train.main([*argv, "--strategy=lbfgs", flag])
    assert not list(tmp_path.iterdir())
    train.main([*argv, "--strategy=lbfgs"])
    assert read_rows(tmp_path)[-1]["loss"] < 0.6
