"""Own all-reduces, reducers, strategies, problems and others, next to built-in ones.

--algorithms=ring,./mine.py:swing        a function of a file
--algorithms=ring,package.module:swing   a function of an installed module
--algorithms=ring,swing                  an entry point of an installed package:

[project.entry-points."dml.allreduces"]
swing = "package.module:swing"

dml.allreduces     swing(comm, buffer, op=np.add)
dml.reducers       reducer(allreduce) -> Reducer
dml.codecs         code() -> Codec
dml.rules          rule(faulty) -> robust.Rule
dml.attacks        attack(part) -> None; writes part.rows[part.attackers]
dml.strategies     train(problem, batches, update, *, comm, timer, **options) -> Steps
dml.problems       make() -> Problem
dml.models         network(shape, classes) -> Model
dml.text_models    network(vocabulary, length) -> Model
dml.corpora        files() -> paths
dml.environments   make() -> Environment
dml.consistencies  rule(choice, workers) -> Consistency
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from dml.types import BadInput

ALLREDUCES = "dml.allreduces"  # groups of entry points
CODECS = "dml.codecs"
RULES = "dml.rules"
ATTACKS = "dml.attacks"
STRATEGIES = "dml.strategies"
PROBLEMS = "dml.problems"
REDUCERS = "dml.reducers"
MODELS = "dml.models"
TEXT_MODELS = "dml.text_models"
CORPORA = "dml.corpora"
ENVIRONMENTS = "dml.environments"
CONSISTENCIES = "dml.consistencies"

# Arguments of a function of each group, as text, and as calls that must be possible.
CALLS: Mapping[str, tuple[str, Sequence[tuple[Sequence[int], Mapping[str, int]]]]] = {
    ALLREDUCES: (
        "(comm, buffer, op=np.add)",
        (((0, 0), {}), ((0, 0, 0), {}), ((0, 0), {"op": 0})),
    ),
    REDUCERS: ("(allreduce)", (((0,), {}),)),
    CODECS: ("()", (((), {}),)),
    RULES: ("(faulty)", (((0,), {}),)),
    ATTACKS: ("(part)", (((0,), {}),)),
    STRATEGIES: (  # further options are allowed
        "(problem, batches, update, *, comm, timer)",
        (((0, 0, 0), {"comm": 0, "timer": 0}),),
    ),
    PROBLEMS: ("()", (((), {}),)),
    MODELS: ("(shape, classes)", (((0, 0), {}),)),
    TEXT_MODELS: ("(vocabulary, length)", (((0, 0), {}),)),
    CORPORA: ("()", (((), {}),)),
    ENVIRONMENTS: ("()", (((), {}),)),
    CONSISTENCIES: ("(choice, workers)", (((0, 0), {}),)),
}

# Path of each file that was loaded -> sha256 of its contents.
FILES: dict[str, str] = {}

SOURCES: set[str] = set()  # files of the functions that were found


def find(name: str, table: Mapping[str, Any], group: str) -> Any:
    """Return an object by its name.

    Args:
      name: Key of the table, `FILE.py:NAME`, `MODULE:NAME`, or name of an entry point.
      table: Objects by name.
      group: Group of the entry points, such as ALLREDUCES.

    Raises:
      BadInput: There is no such object, or it cannot be called.
    """
    if name in table:
        return table[name]
    function = load(name) if ":" in name else load_entry_point(name, table, group)
    check_signature(name, function, group)
    if code := getattr(inspect.unwrap(function), "__code__", None):
        SOURCES.add(code.co_filename)
    return function


def load_entry_point(name: str, table: Mapping[str, Any], group: str) -> Any:
    """Return the object of an entry point."""
    point = installed(group).get(name)
    if point is None:
        raise BadInput(
            f"expected one of {', '.join(names(table, group))}, or FILE.py:NAME, got "
            f"{name!r}; correct the name"
        )
    try:
        function = point.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"expected {point.value} for the entry point {name!r}, got: {error}; "
            "correct the package that is installed"
        ) from error
    if not callable(function):
        raise BadInput(
            f"expected a function for the entry point {name!r}, got a "
            f"{type(function).__name__}, {point.value}; correct the package"
        )
    return function


def check_signature(name: str, function: Callable[..., Any], group: str) -> None:
    """Raise BadInput if a function cannot be called as those of its group."""
    if group not in CALLS:
        return
    text, calls = CALLS[group]
    wanted, steps = f"{short_name(name)}{text}", group == STRATEGIES
    generator = inspect.isgeneratorfunction(function)
    if inspect.iscoroutinefunction(function) or (generator and not steps):
        raise BadInput(f"expected a function {wanted}, got one with yield or await")
    try:
        signature = inspect.signature(function)
        bind = signature.bind_partial if steps else signature.bind
        for arguments, options in calls:
            bind(*arguments, **options)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"expected a function {wanted}, got {name}, which does not take these "
            f"arguments: {error}"
        ) from error


def make(name: str, function: Callable[..., Any], kind: type, *arguments: Any) -> Any:
    """Return function(*arguments); raise BadInput unless the result is of a type."""
    result = function(*arguments)
    if not isinstance(result, kind):
        raise BadInput(
            f"expected {with_article(kind)} from {name}, got "
            f"{with_article(type(result))}; return dml.{kind.__name__}(...)"
        )
    return result


def with_article(kind: type) -> str:
    """Return the name of a type with its indefinite article."""
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def accepted(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return those options that are parameters of the function."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in parameters}


def names(table: Mapping[str, Any], group: str) -> list[str]:
    """Return the names of a table and of the entry points of a group."""
    return [*table, *(name for name in installed(group) if name not in table)]


def is_known(name: str, table: Mapping[str, Any], group: str) -> bool:
    """Return whether a text is a name in the table or the group, or FILE:NAME.

    A name with arguments, such as `krum:2`, is neither.
    """
    return (
        short_name(name).isidentifier() if ":" in name else name in names(table, group)
    )


def short_name(name: str) -> str:
    """Return the short name of an object: NAME of `FILE.py:NAME`."""
    return name.rpartition(":")[2]


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


@cache
def load(name: str) -> Callable[..., Any]:
    """Return the object `FILE.py:NAME` or `MODULE:NAME`."""
    source, _, attribute = name.rpartition(":")
    is_file = source.endswith(".py")
    module = import_file(Path(source).expanduser()) if is_file else import_name(source)
    function = getattr(module, attribute, None)
    if callable(function):
        return function
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    closest = get_close_matches(attribute, own, 3) or own[:3]
    raise BadInput(
        f"expected a function of {source}, such as {', '.join(closest) or 'one in it'},"
        f" got {attribute!r}; correct the name after the colon"
    )


def import_name(name: str) -> ModuleType:
    """Import an installed module, or one of the current directory."""
    wrong = BadInput(
        f"expected a Python file or an installed module, got {name!r}; pass "
        "FILE.py:NAME or MODULE:NAME"
    )
    if not all(part.isidentifier() for part in name.split(".")):
        raise wrong
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        with explain_errors(name):
            return import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise wrong from error


def import_file(path: Path) -> ModuleType:
    """Import a file once; files next to it can be imported by it."""
    if not path.is_file():
        raise BadInput(f"expected a Python file, got {str(path)!r}; correct the path")
    path = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    sys.modules[name] = module
    SOURCES.add(str(path))
    try:
        with explain_errors(str(path)), neighbours_first(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    FILES[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return module


@contextmanager
def neighbours_first(folder: Path) -> Iterator[None]:
    """Import modules of this folder before others of the same name.

    Each file has its own neighbours: they are forgotten afterwards, and modules of the
    same name from other folders are set aside meanwhile, unless they are installed.
    """
    names = {path.stem for path in folder.glob("*.py")}
    names |= {path.parent.name for path in folder.glob("*/__init__.py")}

    def of_folder(module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return bool(file) and folder in Path(str(file)).resolve().parents

    aside = {
        name: module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in names and is_own(module)
    }
    for name in aside:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # for imports inside of functions
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in names and of_folder(module):
                del sys.modules[name]
        sys.modules.update(aside)


def is_own(module: ModuleType) -> bool:
    """Return whether a module is neither installed nor of the standard library."""
    file = str(getattr(module, "__file__", None) or "")
    standard = str(Path(inspect.__file__).parent)
    return bool(file) and "site-packages" not in file and not file.startswith(standard)


@contextmanager
def explain_errors(source: str) -> Iterator[None]:
    """Turn errors of a file that cannot be a module into BadInput."""
    try:
        yield
    except SyntaxError as error:
        raise BadInput(
            f"expected Python in {error.filename or source}, got in line "
            f"{error.lineno}: {error.msg}; correct the file"
        ) from error
    except SystemExit as error:
        raise BadInput(
            f"expected a module in {source}, got a script that exits when it is "
            "imported; put its calls under if __name__ == '__main__'"
        ) from error
    except ImportError as error:
        if "relative import" not in str(error):
            raise
        raise BadInput(
            f"expected absolute imports in {source}, got: {error}; import files next "
            "to it by name, or pass package.module:NAME"
        ) from error
