"""The book's pages of systems and its index of names, written from the code.

table/*.toml in, which say what docstrings don't: names, files, commands, figures.
systems/*.md and names.md out: docstrings and short functions as they stand in the code.

python docs/book.py            writes what has changed, after a docstring or a table has
mkdocs build --strict          makes build/site of it; links that lead nowhere fail
"""

import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from code_shown import documented, first_line, function

DOCS = Path(__file__).parent
PARTS = ["allreduce", "glove", "server", "memory", "data", "model", "virtual", "runs"]
MADE = "<!-- Made by docs/book.py from docs/table/{part}.toml and the code. -->"


class System(NamedTuple):
    """One page."""

    page: str
    title: str
    text: str  # what it is, in words that no docstring has
    quote: list[str]  # file, or file:function, whose docstrings the page shows
    part: str = ""
    names: list[str] = []  # by which readers may look for it
    values: list[str] = []  # of flags, that choose it
    show: str = ""  # file:function, shown whole
    files: list[str] = []  # beside those
    run: list[str] = []
    figure: str = ""
    measured: str = ""  # a page of figures


class Part(NamedTuple):
    """Systems that are rivals, or belong together."""

    name: str
    title: str
    text: str
    measured: list[str]
    systems: list[System]


def parts(docs: Path = DOCS) -> list[Part]:
    """Read the table."""
    return [part(docs, name) for name in PARTS]


def part(docs: Path, name: str) -> Part:
    read = tomllib.loads((docs / f"table/{name}.toml").read_text("utf-8"))
    systems = [System(part=name, **entry) for entry in read["system"]]
    about = read["part"]
    return Part(name, about["title"], about["text"], about["measured"], systems)


def pages(docs: Path = DOCS) -> dict[str, str]:
    """Return every page that is made, by its path in docs."""
    found = parts(docs)
    made = {"names.md": index_of_names(found), "systems/index.md": overview(found)}
    for one in found:
        for system in one.systems:
            made[f"systems/{system.page}.md"] = page(system, one, docs.parent)
    return made


def page(system: System, part: Part, root: Path) -> str:
    """Return the page of a system."""
    sections = [
        MADE.format(part=part.name),
        f"# {system.title}",
        f"Part of [{part.title}](index.md#{slug(part.title)}).",
        system.text.strip(),
        *called(system),
        "## What the code says",
        *quoted(system, root),
        *source(system, root),
        *commands(system, root),
        *figures(system, root),
    ]
    return "\n\n".join(sections) + "\n"


def called(system: System) -> Iterator[str]:
    if system.names:
        yield f"Names: {', '.join(system.names)}."
    if system.values:
        yield f"Chosen by {', '.join(f'`{value}`' for value in system.values)}."


def quoted(system: System, root: Path) -> Iterator[str]:
    """Yield the docstrings, each after a link to its file."""
    for where in system.quote:
        path, _, name = where.partition(":")
        of = f", `{name}`" if name else ""
        yield f"{link(path)}{of}:\n\n{fenced(documented(root, where), 'text')}"


def source(system: System, root: Path) -> Iterator[str]:
    """Yield the function that is shown, and links to other files."""
    if system.show:
        path, _, name = system.show.partition(":")
        yield f"## The function\n\n`{name}` in {link(path)}, without its docstring:"
        yield fenced(function(root, system.show), "python")
    if system.files:
        lines = [f"- {link(path)}: {first_line(root, path)}" for path in system.files]
        yield "## Beside it\n\n" + "\n".join(lines)


def commands(system: System, root: Path) -> Iterator[str]:
    if not system.run:
        return
    yield "## Run it\n\n" + fenced("\n".join(system.run), "sh")
    scripts = dict.fromkeys(map(script, system.run))
    yield "\n".join(f"- {link(path)}: {first_line(root, path)}" for path in scripts)


def figures(system: System, root: Path) -> Iterator[str]:
    if system.figure or system.measured:
        yield "## Figures"
    if system.figure:
        yield f"![{system.title}: its experiment's figure](../{system.figure})"
    if system.measured:
        path, _, anchor = system.measured.partition("#")
        title = (root / "docs" / path).read_text("utf-8").splitlines()[0].lstrip("# ")
        hash_ = f"#{anchor}" if anchor else ""
        yield f"Measured, with hardware and sizes: [{title}](../{path}{hash_})."


def index_of_names(found: list[Part]) -> str:
    """Return the index: a row a name, in the order of the alphabet."""
    rows = [row for one in found for system in one.systems for row in named(system)]
    rows.sort(key=lambda row: (re.sub(r"\W|_", "", row[0]).casefold(), row))
    head = [
        "<!-- Made by docs/book.py from docs/table/ and the code. -->",
        "# Index of names",
        "A system by any of its names, or by the flag that chooses it: its page, where "
        "it lives, and the command that runs it.",
    ]
    table = ["| name | page | file | command |", "|---|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows]
    return "\n\n".join([*head, "\n".join(table)]) + "\n"


def named(system: System) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each name of a system."""
    path = (system.show or system.quote[0]).partition(":")[0]
    run = f"`{system.run[0]}`" if system.run else ""
    where = f"[{system.title}](systems/{system.page}.md)"
    values = [f"`{value}`" for value in system.values]
    every = [*values, *reversed(system.names), system.title]
    for name in {name.casefold(): name for name in every}.values():
        yield name, where, f"[`{path}`](../{path})", run.replace("|", "\\|")


def overview(found: list[Part]) -> str:
    """Return the list of all systems, part by part."""
    lines = [
        "<!-- Made by docs/book.py from docs/table/ and the code. -->",
        "# All systems",
        "A page each: what it is; its picture, rounds and cost in the code's own "
        "words; where it lives; the command that runs it.",
    ]
    for one in found:
        lines += [f"## {one.title}", one.text.strip()]
        items = [f"- [{s.title}]({s.page}.md): {sentence(s.text)}" for s in one.systems]
        lines.append("\n".join(items))
        if one.measured:
            links = ", ".join(f"[{Path(p).stem}](../{p})" for p in one.measured)
            lines.append(f"Figures, measured: {links}.")
    return "\n\n".join(lines) + "\n"


def script(command: str) -> str:
    """Return the script that a command runs, or the file that it hands over."""
    found = re.findall(
        r"\b(?:experiments|launch)/\w+\.(?:py|sh|sbatch|yaml)\b", command
    )
    return next((path for path in found if path.endswith(".py")), found[0])


def sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text.strip(), maxsplit=1)[0].replace("\n", " ")


def slug(title: str) -> str:
    """Return a heading's anchor, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def link(path: str) -> str:
    return f"[`{path}`]({posixpath.join('../..', path)})"


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def main() -> int:
    """Write what has changed; pages that nothing makes any more are removed."""
    made = pages()
    for path in DOCS.glob("systems/*.md"):
        if path.relative_to(DOCS).as_posix() not in made:
            os.remove(path)
    for name, text in made.items():
        path = DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            sys.stdout.write(f"wrote docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
