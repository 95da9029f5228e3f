"""The help of a command: the flags most used by --help, all flags by --help=all.

--help prints the purpose of a command, its first examples, and up to SHOWN flags: those
of FIRST, those that the command's file defines, and those of further files that fit.
The names of the other flags follow.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.progress import is_rank_0
from lab.shared_flags import MAX_NUMBER, MAX_SIZE, FlagValues
from absl import flags

FIRST = (
    *("strategy", "strategies", "algorithm", "algorithms", "problem", "problems"),
    *("model", "data", "corpus", "environment", "environments", "updates"),
    *("allreduce", "size", "sizes", "ranks", "workers", "optimizer", "lr", "batch"),
    *("steps", "epochs", "clocks", "seed", "simulate", "out"),
)
SHARED_FILE = "lab.flags"  # module that defines the flags of lab.shared_flags
SHOWN = 22  # largest number of flags of --help
EXAMPLES = 3  # largest number of examples of --help
WIDTH = 80  # characters of a line
MAX_DEFAULT = 40  # characters of a default value beside its flag
INDENT = 26  # characters before the text of a flag
FILES = {  # flags that absl reads before all others
    "flagfile": "File of further flags, one a line.",
    "undefok": "Names of flags, by commas, that are ignored if they are unknown.",
}


def print_help(values: FlagValues, everything: bool) -> None:
    """Print the help of the command on rank 0.

    Args:
      values: Flags of the command.
      everything: Whether to print all flags.
    """
    if is_rank_0():
        doc = (sys.modules["__main__"].__doc__ or "").strip()
        lines = all_lines(doc, values) if everything else first_lines(doc, values)
        sys.stdout.write("\n".join(lines) + "\n")


def first_lines(doc: str, values: FlagValues) -> Iterator[str]:
    """Yield the lines of --help."""
    name = Path(sys.argv[0]).name
    shown = first_names(values)
    others = sorted(set(values) - {*shown, "help", "h"})
    yield doc.partition("\n")[0]
    yield f"\nusage: [mpirun -n P] python experiments/{name} [--FLAG=VALUE ...]\n"
    yield from examples(doc)
    yield ""
    for flag in shown:
        yield from flag_lines(values[flag], ranges=False)
    yield "\nFurther flags, which --help=all describes:"
    yield from wrapped(", ".join(others), "  ")


def all_lines(doc: str, values: FlagValues) -> Iterator[str]:
    """Yield the lines of --help=all: the docstring, and the flags by file."""
    yield doc
    named = [name for name in FIRST if name in values]
    groups = {"most used": named}
    for module, names in by_file(values).items():
        title = "of every experiment" if module == SHARED_FILE else f"of {module}"
        groups[title] = [name for name in names if name not in named]
    for title, names in groups.items():
        if names:
            yield f"\nFlags {title}:"
        for name in names:
            yield from flag_lines(values[name])
    yield "\nFlags of files:"
    for name, text in FILES.items():
        yield from entry(f"  --{name}=", text)


def by_file(values: FlagValues) -> dict[str, list[str]]:
    """Return the names of the flags by module; the command's file first, lab last."""
    modules = values.flags_by_module_dict()
    names = {module: [flag.name for flag in modules[module]] for module in modules}
    shared = names.pop(SHARED_FILE, [])
    own = Path(sys.argv[0]).stem
    order = sorted(names, key=lambda module: Path(module).stem != own)
    return {name: names[name] for name in order} | {SHARED_FILE: shared}


def first_names(values: FlagValues) -> list[str]:
    """Return the names of the flags of --help."""
    shown = [name for name in FIRST if name in values]
    *modules, _ = by_file(values).values()
    for names in [*modules[:1], *reversed(modules[1:])]:
        further = [name for name in names if name not in shown]
        fit = names is modules[0] or len(shown) + len(further) <= SHOWN
        shown += further if fit else []
    return shown


def examples(doc: str) -> Iterator[str]:
    """Yield the lines of the first examples of a docstring."""
    found = re.findall(r"^((?:python|mpirun).*(?:\\\n.*)*)", doc, re.MULTILINE)
    for text in found[:EXAMPLES]:
        command, *about = re.split(r"\s{2,}(?!--)", text)
        yield f"  {command}"
        if about:
            yield f"      # {about[0]}"


def flag_lines(flag: flags.Flag, ranges: bool = True) -> list[str]:
    """Return the lines of a flag: name and default, help, choices and range."""
    texts = [re.sub("^<[^>]*>: ", "", flag.help or "")]  # without absl's choices
    default = default_text(flag.default)
    head = f"  --{flag.name}={default if len(default) <= MAX_DEFAULT else ''}"
    if len(default) > MAX_DEFAULT:
        spaced = re.sub("([,;])", "\\1 ", default)  # to be wrapped
        texts.append(f"Default: {spaced}.")
    if flag.boolean:
        head = f"  --[no]{flag.name}"
        texts.append(f"[{'on' if flag.default else 'off'}]")
    choices = getattr(flag.parser, "enum_values", None)
    if choices:
        texts.append(f"One of {', '.join(choices)}.")
    if ranges and isinstance(flag.parser, flags.FloatParser | flags.IntegerParser):
        texts.append(range_text(flag.parser.lower_bound, flag.parser.upper_bound))
    return entry(head, " ".join(texts))


def range_text(least: float | None, most: float) -> str:
    """Return the range of a number; the default upper bounds are not shown."""
    if most in (MAX_SIZE, MAX_NUMBER):
        return "" if least is None else f"At least {least:g}."
    return f"At most {most:g}." if least is None else f"From {least:g} to {most:g}."


def default_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def entry(head: str, text: str) -> list[str]:
    """Return lines with a head on the left and wrapped text on the right."""
    first, *rest = wrapped(text, " " * INDENT) or [""]
    if len(head) + 2 <= INDENT:
        return [head.ljust(INDENT) + first.strip(), *rest]
    return [head, first, *rest]


def wrapped(text: str, indent: str) -> list[str]:
    """Return lines of at most WIDTH characters; no word is broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
