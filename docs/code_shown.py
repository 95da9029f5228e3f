"""Docstrings and sources of the code, read without importing it.

The code is named by file, file:function or file:Class.method. The docstring of a shell
script is its first comment.
"""

import ast
from functools import cache
from pathlib import Path
from textwrap import dedent

LONGEST = 60  # lines of a function on a page


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def documented(root: Path, where: str) -> str:
    """Return the docstring of a module, function or method."""
    path, _, name = where.partition(":")
    if not path.endswith(".py"):
        return comment(root / path)
    found = ast.get_docstring(node(root / path, name))
    if not found:
        raise ValueError(f"expected a docstring in {where}, got none; write it there")
    return found


def first_line(root: Path, path: str) -> str:
    """Return the first line of a file's docstring."""
    return documented(root, path).splitlines()[0]


def function(root: Path, where: str) -> str:
    """Return the source of a function without its docstring."""
    path, _, name = where.partition(":")
    found = node(root / path, name)
    assert isinstance(found, ast.FunctionDef | ast.ClassDef)
    lines = (root / path).read_text("utf-8").splitlines()
    start = min([found.lineno, *(one.lineno for one in found.decorator_list)])
    shown = lines[start - 1 : found.end_lineno]
    if ast.get_docstring(found):
        text = found.body[0]
        assert text.end_lineno is not None
        after = not lines[text.end_lineno].strip()  # formatters want none at the top
        del shown[text.lineno - start : text.end_lineno - start + 1 + after]
    if len(shown) > LONGEST:
        raise ValueError(
            f"expected at most {LONGEST} lines of {where}, got {len(shown)}; show "
            "another function"
        )
    return dedent("\n".join(shown))


def node(path: Path, name: str) -> ast.Module | ast.FunctionDef | ast.ClassDef:
    """Return the definition with a dotted name; the module for an empty name."""
    found: ast.Module | ast.FunctionDef | ast.ClassDef = tree(path)
    for word in filter(None, name.split(".")):
        named = {
            one.name: one
            for one in found.body
            if isinstance(one, ast.FunctionDef | ast.ClassDef)
        }
        if word not in named:
            raise ValueError(f"expected {name} in {path}, got none; correct the table")
        found = named[word]
    return found


def comment(path: Path) -> str:
    """Return the first comment of a script."""
    lines = path.read_text("utf-8").splitlines()
    found = []
    for line in lines[lines[0].startswith("#!") :]:
        if not line.startswith("#") or line.startswith("#SBATCH"):
            break
        found.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(found).strip("\n")
