"""Every cell of the matrix: it trains, or is refused; and those that agree, agree."""

import math
import subprocess
from functools import cache, partial

import pytest
from lab import started
from studies.matrix import report
from studies.matrix.cells import cell, cells
from studies.matrix.methods import DEVICES, METHODS

from dml import problems, sim
from dml.problems import PROBLEMS
from dml.strategies import STRATEGIES, fitting
from dml.types import BadInput
from tests.commands import COMPILED, PYTHON, ROOT, command
from tests.strategies.small import alone

UPDATES = 4
ON_RANKS = [name for name, method in METHODS.items() if method.fabric != DEVICES]
SMALL_GPT = cache(partial(problems.gpt, problems.TEXT._replace(layers=1)))
ENTRIES = PROBLEMS | {"gpt": PROBLEMS["gpt"]._replace(make=SMALL_GPT)}
SERVERS = [f"server {name}" for name in ("async", "ssp", "essp", "softsync", "backup")]
ON_THREADS = ["hogwild_private", "delayed", "average", "minibatch"]
# Cells that compile programs of their own; the problem is trained by other methods, and
# the method trains other problems (offload a GPT in plans/test_offload.py; kfac has the
# factors of poseidon).
OMITTED = {
    "gpt": ["zeno", "scan", "offload", "poseidon", "kfac", "server bsp", *SERVERS],
    "episodes": ["zeno", *SERVERS],
    "svm": ["zeno", *SERVERS, *ON_THREADS],
    "cuts": ["zeno", "delayed", "average", "cyclades"],
    "dropout": ["zeno", "hogwild_private", "minibatch", "cyclades"],
    "completion": ["cyclades"],
    "documents": ["hogwild_private", "delayed"],
}
CELLS = [
    (problem, method)
    for problem in PROBLEMS
    for method in ON_RANKS
    if method not in OMITTED.get(problem, [])
]
# Refused because of the model's gradients, not because of a field of the problem.
REFUSED = {("linear", "kfac"): "expected a model with dense layers, whose gradients"}
# Equal bits of trained parameters, in every problem that both methods train.
EQUAL = [
    ("serial", "synchronous star"),
    ("serial", "server bsp"),
    ("serial", "coded"),
    ("coded", "coded under attack"),
    ("coded", "gradient_coding"),
    ("hogwild on 1 worker", "hogwild_private"),
    ("hogwild on 1 worker", "cyclades"),
    ("hogwild on 1 worker", "minibatch"),
    ("rotation on 1 rank", "rotation"),
]
ELSEWHERE = {("glove", "server bsp")}  # rows of another layout, summed in another order


@cache
def row(problem, method):
    try:
        return cell(alone(), METHODS[method], ENTRIES[problem], UPDATES)
    except BadInput as error:
        return str(error)


@pytest.mark.parametrize("problem, method", CELLS)
def test_every_cell_trains_or_is_refused_in_one_line(problem, method):
    found, strategy = row(problem, method), METHODS[method].strategy
    if (problem, method) in REFUSED:
        assert REFUSED[problem, method] in found and "\n" not in found
    elif isinstance(found, str):
        fits = fitting(PROBLEMS[problem].make())
        assert strategy not in fits
        assert f"for --strategy={strategy}, got" in found and "\n" not in found
        assert all(name in found for name in fits)
    else:
        assert math.isfinite(found["loss"])
        assert (found["words_sent"] > 0) == (METHODS[method].ranks > 1)


@pytest.mark.parametrize("one, other", EQUAL)
def test_methods_that_should_agree_have_equal_bits(one, other):
    compared = 0
    for problem in PROBLEMS:
        if not {(problem, one), (problem, other)} <= set(CELLS):
            continue
        rows = row(problem, one), row(problem, other)
        if isinstance(rows[0], str) or isinstance(rows[1], str):
            continue
        if {(problem, one), (problem, other)} & ELSEWHERE:
            continue
        assert rows[0]["sha256"] == rows[1]["sha256"], problem
        compared += 1
    assert compared


def test_another_order_of_a_sum_is_seen():
    bits = [row("linear", f"synchronous {name}")["sha256"] for name in ("star", "ring")]
    assert bits[0] != bits[1]


def test_rotation_of_glove_is_one_worker_of_hogwild():
    both = row("glove", "rotation"), row("glove", "hogwild on 1 worker")
    assert both[0]["sha256"] == both[1]["sha256"]


def test_every_strategy_of_examples_has_a_method_and_trains_a_problem():
    # actors make the batches of the others; rl.py runs them
    names = {name for name, entry in STRATEGIES.items() if "play" not in entry.needs}
    assert {method.strategy for method in METHODS.values()} == names
    trained = set().union(*(fitting(entry.make()) for entry in PROBLEMS.values()))
    assert trained | {"rotation"} == names


def test_a_number_of_ranks_that_no_method_has_is_refused():
    def program(comm):
        return list(cells(comm, ["linear"], ["serial", "local"], UPDATES))

    with pytest.raises(BadInput, match="a method that runs on 2 ranks, got none"):
        sim.run(program, 2)


@pytest.mark.mpi
def test_real_ranks_train_the_methods_of_their_number(tmp_path):
    command = [*started.python(3), ROOT / "experiments/matrix.py"]
    command += ["--problems=linear", "--methods=serial,local", f"--out={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 cells train" in done.stdout


def test_meshes_train_on_devices_and_the_page_has_every_cell(tmp_path):
    methods = [name for name in METHODS if name not in ON_RANKS]
    flags = f"--methods={','.join(['serial', *methods])}", f"--out={tmp_path}"
    script = "experiments/matrix.py", "--problems=mlp,documents"
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiles faster
    done = command(PYTHON, *script, *flags, **quick, **COMPILED)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "matrix.md").read_text()
    for name in ("mlp", "documents"):
        cells = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
        assert len(cells) == 3
        assert ("| - |" in cells[0]) == (name == "documents")


def test_a_problem_may_have_more_than_26_different_results():
    cells = [{"fits": True, "problem": "gpt", "sha256": n % 40} for n in range(80)]
    labels = [row["bits"] for row in report.add_letters(cells)]
    assert labels[:40] == labels[40:] and len(set(labels)) == 40
    assert labels[0] == "A" and labels[25:28] == ["Z", "A1", "B1"]
