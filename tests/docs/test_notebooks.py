"""The notebooks: they run as stored, solutions pass, wrong answers get a message."""

import ast
import contextlib
import importlib.util
import io
import json
import re
import sys
from functools import cache

import pytest
from notebooks import FOLDER, executed, notebook

from dml.exercises import CORRECT
from tests.docs.wrong_answers import WRONG

NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
MAX_BYTES = 200_000
TIME_OR_PATH = re.compile(r"/home|/root|/tmp|/work|\d:\d\d|0x[0-9a-f]{6}")
nbclient = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nbclient", "ipykernel"))),
    reason="pip install -e .[test]: nbclient and ipykernel",
)


@cache
def stored(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))


def without_outputs(made):
    empty = {"outputs": [], "execution_count": None}
    return [cell | (empty if "outputs" in cell else {}) for cell in made["cells"]]


def texts(made):
    """Return the text that each cell prints; figures are left out."""
    return [
        ["".join(output.get("text", "")) for output in cell.get("outputs", ())]
        for cell in made["cells"]
    ]


def kind(cell):
    return next(iter(cell["metadata"].get("tags", ())), cell["cell_type"])


def run(source, names):
    """Run a cell and return what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(source, names)
    return output.getvalue()


def exercises(name):
    """Yield for each exercise the code before it, its cell, its solution, its check."""
    before, (exercise, check) = [], (None, None)
    for cell in stored(name)["cells"]:
        source = "".join(cell["source"])
        if kind(cell) == "solution":
            solution = re.search("```python\n(.*)\n```", source, re.DOTALL)[1]
            yield before, exercise, solution, check
            before = [solution, check]
        elif kind(cell) == "exercise":
            exercise = source
        elif kind(cell) == "check":
            check = source
        elif kind(cell) in ("code", "figure"):
            before = [*before, source]
    yield before, None, None, None


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_source_and_is_small(name):
    made = notebook((FOLDER / f"{name}.py").read_text("utf-8"))
    assert without_outputs(stored(name)) == made["cells"]
    assert stored(name).keys() == made.keys()
    assert stored(name)["metadata"] == made["metadata"]
    assert (FOLDER / f"{name}.ipynb").stat().st_size <= MAX_BYTES
    kinds = [kind(cell) for cell in made["cells"]]
    assert kinds.count("exercise") >= 3 and "figure" in kinds
    order = [one for one in kinds if one in ("exercise", "check", "solution")]
    assert order == ["exercise", "check", "solution"] * kinds.count("exercise")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_a_notebook_have_no_path_and_no_error(name):
    for cell in stored(name)["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] in ("stream", "display_data")
            assert output.get("name", "stdout") == "stdout"
            assert not TIME_OR_PATH.search("".join(output.get("text", "")))
            assert "Software" not in str(output.get("data", ""))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_the_base_and_matplotlib_only(name):
    imported = set()
    for cell in stored(name)["cells"]:
        if cell["cell_type"] == "code" and kind(cell) != "install":
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.Import):
                    imported |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add(node.module)
    packages = {one.partition(".")[0] for one in imported} - sys.stdlib_module_names
    assert packages == {"dml", "matplotlib", "numpy"}


@nbclient
@pytest.mark.filterwarnings("default")  # of the packages that start a kernel
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_as_stored_and_prints_what_it_shows(name, tmp_path):
    assert texts(executed(stored(name), tmp_path)) == texts(stored(name))


@pytest.mark.parametrize("name", NAMES)
def test_solutions_pass_and_each_wrong_answer_gets_its_message(name):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    names, seen = {}, set()
    for before, exercise, solution, check in exercises(name):
        for source in before:
            run(source, names)
        if exercise is None:
            break
        run(exercise, names)
        assert run(check, names).startswith("Not complete: ")
        (function,) = re.findall(r"^def (\w+)", solution, re.MULTILINE)
        for right, wrong, message in WRONG[name][function]:
            assert solution.count(right) == 1, right
            run(solution.replace(right, wrong), names)
            assert message in run(check, names), wrong
        run(solution, names)
        assert run(check, names) == f"{CORRECT}\n"
        seen.add(function)
    assert seen == WRONG[name].keys()
    assert all(len(answers) >= 2 for answers in WRONG[name].values())
    pyplot.close("all")
