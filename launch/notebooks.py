"""Write docs/notebooks/*.ipynb from the Python files beside them, and execute them.

    python launch/notebooks.py               # needs the extra `test`

A line `# %% KIND` starts a cell of a Python file:

    markdown    text, in comments
    (none)      code
    install     code in comments: installs dml where it is missing
    exercise    code with `...`, which the reader completes
    check       code that prints the error, hidden
    solution    the completed code: collapsed text of the notebook, not run
    figure      code that draws, also from exercises that are not complete
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs/notebooks"
CELL = re.compile(r"^# %% ?(\w*)\n", re.MULTILINE)
HIDDEN = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # Jupyter; Colab
SOLUTION = "<details><summary>Solution</summary>\n\n```python\n{}\n```\n\n</details>"
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(source: str) -> dict[str, Any]:
    """Return the notebook of a Python file, without outputs."""
    _, *parts = CELL.split(source)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    cells = [cell(i, kind, text.strip("\n")) for i, (kind, text) in enumerate(pairs)]
    return {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}


def cell(number: int, kind: str, text: str) -> dict[str, Any]:
    """Return a cell; its tag is its kind."""
    if kind in ("markdown", "install"):
        text = re.sub("^# ?", "", text, flags=re.MULTILINE)
    if kind == "solution":
        text = SOLUTION.format(text)
    written = kind in ("markdown", "solution")
    metadata: dict[str, Any] = HIDDEN if kind == "check" else {}
    if kind and kind != "markdown":
        metadata = metadata | {"tags": [kind]}
    made = {
        "cell_type": "markdown" if written else "code",
        "id": f"cell-{number}",
        "metadata": metadata,
        "source": text.splitlines(keepends=True),
    }
    return made if written else made | {"execution_count": None, "outputs": []}


def executed(made: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells, run in a folder."""
    import nbformat
    from nbclient import NotebookClient

    node = nbformat.reads(json.dumps(made), as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    options = {"record_timing": False, "coalesce_streams": True}  # equal every time
    NotebookClient(node, resources=resources, **options).execute()
    return made | {"cells": json.loads(nbformat.writes(node))["cells"]}


def main() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        made = executed(notebook(path.read_text("utf-8")), FOLDER)
        text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True)
        path.with_suffix(".ipynb").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
