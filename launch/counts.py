"""Counts of the source code, a column for each folder with a checkout.

python launch/counts.py                     this checkout
python launch/counts.py ../before .         two checkouts, in two columns
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("dml", "experiments", "tests", "launch")
SHORT = 5  # lines
TEMPLATE = "experiments/linear.py"


def read(root: Path) -> dict[Path, str]:
    """Return the text of each file, by its path in the checkout."""
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*.py")]
    return {file.relative_to(root): file.read_text() for file in files}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules, or objects of modules, that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(name: str) -> Iterator[str]:
    """Yield the packages that contain a module."""
    while name := name.rpartition(".")[0]:
        yield name


def closure(trees: dict[Path, ast.Module], start: Path) -> set[Path]:
    """Return the files that `start` imports, directly or not, with their packages."""
    files = {}
    for path in trees:
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        files[name.removeprefix("experiments.")] = path
    found, rest = set[Path](), [start]
    while rest:
        names = set(imported(trees[rest.pop()]))
        names |= {parent for name in names for parent in packages(name)}
        new = {files[name] for name in names if name in files}
        rest += new - found
        found |= new
    return found


def strings(node: ast.AST) -> set[str]:
    """Return the strings that a side of a comparison, or a pattern, consists of."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    parts = (ast.Tuple, ast.Set, ast.List, ast.MatchValue, ast.MatchOr)
    if not isinstance(node, parts):
        return set()
    return {text for part in ast.iter_child_nodes(node) for text in strings(part)}


def counts_of(root: Path) -> dict[str, int | str]:
    """Return the counts of a checkout."""
    texts = read(root)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    counts: dict[str, int | str] = {}
    for folder in FOLDERS:
        own = [path for path in trees if path.parts[0] == folder]
        counts[f"{folder}: files"] = len(own)
        counts[f"{folder}: lines"] = sum(len(texts[path].splitlines()) for path in own)
    source = {p: t for p, t in trees.items() if p.parts[0] in ("dml", "experiments")}
    nodes = [node for tree in source.values() for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    short = [one for one in functions if one.end_lineno - one.lineno < SHORT]
    counts["functions"] = len(functions)
    counts[f"functions of at most {SHORT} lines"] = f"{len(short) / len(functions):.0%}"
    counts["NamedTuples"] = sum(
        isinstance(node, ast.ClassDef)
        and "NamedTuple" in [ast.unparse(base) for base in node.bases]
        for node in nodes
    )
    for name in ("main", "draw", "summarize"):
        counts[f"functions named {name}"] = [one.name for one in functions].count(name)
    strategies = {p.stem for p in source if p.parts[:2] == ("dml", "strategies")}
    compared = [
        strings(side)
        for node in nodes
        if isinstance(node, ast.Compare | ast.match_case)
        for side in ast.iter_child_nodes(node)
    ]
    counts["comparisons with a module of strategies"] = sum(
        bool(texts & strategies) for texts in compared
    )
    counts["files with the word kfac"] = sum(
        "kfac" in texts[path].lower() for path in source
    )
    counts[f"{TEMPLATE}: lines"] = len(texts[Path(TEMPLATE)].splitlines())
    counts[f"{TEMPLATE}: modules it imports"] = len(closure(trees, Path(TEMPLATE)))
    return counts


if __name__ == "__main__":
    columns = [counts_of(Path(name)) for name in sys.argv[1:] or [ROOT]]
    for row in columns[0]:
        numbers = "".join(f"{one[row]:>10}" for one in columns)
        sys.stdout.write(f"{row:45}{numbers}\n")
