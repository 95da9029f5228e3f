"""Excerpts of Python files, by name: the core of a single file in its chapter.

    [`experiments/single/allreduce.py`](../experiments/single/allreduce.py): picture,
    `all_gather`, `tree: while step < size`.

The site shows the named parts below such a paragraph; GitHub shows the paragraph. The
picture is the file's docstring; `function: text` is the statement of a function whose
first line begins with this text.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from textwrap import dedent

CORE = re.compile(
    r"^\[`(?P<path>experiments/single/\w+\.py)`\]\(\.\./(?P=path)\):\s(?P<items>[^\n].*?)\.$",
    re.DOTALL | re.MULTILINE,
)
Definition = ast.FunctionDef | ast.ClassDef


def core(source: str, items: str) -> str:
    """Return the blocks of Markdown with the items of a source."""
    picture = "picture" in items.split("`")[0]
    parts = [excerpt(source, item) for item in re.findall("`(.*?)`", items)]
    text = f"```text\n{ast.get_docstring(parsed(source))}\n```\n\n" if picture else ""
    return text + "```python\n" + "\n\n".join(parts) + "\n```" * bool(parts)


def excerpt(source: str, item: str) -> str:
    """Return the lines of a definition, or of a statement of a function."""
    name, _, text = item.partition(": ")
    found = next((node for node in parsed(source).body if name in names(node)), None)
    lines = source.splitlines()
    for node in [found, *ast.walk(found)] if text and found else [found]:
        if isinstance(node, ast.stmt):
            first = lines[node.lineno - 1]
            if not text or first.lstrip().startswith(text):
                return dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    raise ValueError(f"expected a definition or a statement, got {item!r}")


def definitions(source: str) -> dict[str, ast.stmt]:
    """Return functions, classes, constants, and methods as Class.method."""
    found = {}
    for node in parsed(source).body:
        found |= dict.fromkeys(names(node), node)
        if isinstance(node, ast.ClassDef):
            own = [each for each in node.body if isinstance(each, Definition)]
            found |= {f"{node.name}.{each.name}": each for each in own}
    return found


def names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)
