"""The book's pages of systems and its index of names, written from the code.

table/*.toml say what docstrings don't: names, files, commands, figures. The templates
table/*.jinja add docstrings and short functions as they stand in the code.

python docs/book.py            writes what has changed, after a docstring or a table has
mkdocs build --strict          makes build/site of it; links that lead nowhere fail
"""

import os
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from code_shown import documented, first_line, function
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

DOCS = Path(__file__).parent
PARTS = ["allreduce", "glove", "server", "memory", "data", "model", "virtual", "runs"]


class System(NamedTuple):
    """One page."""

    page: str
    title: str
    text: str  # its first paragraph
    quote: list[str]  # file, or file:function, whose docstrings the page shows
    part: str = ""
    names: list[str] = []  # in the index
    values: list[str] = []  # flags that select it
    show: str = ""  # file:function, shown without its docstring
    files: list[str] = []  # further ones
    run: list[str] = []
    figure: str = ""
    measured: str = ""  # a page of figures


class Part(NamedTuple):
    """A group of systems."""

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
    """Return every generated page, by its path in docs."""
    found = parts(docs)
    index = template("index.md.jinja", docs.parent).render(parts=found)
    made = {"names.md": index_of_names(found), "systems/index.md": index}
    for one in found:
        for system in one.systems:
            made[f"systems/{system.page}.md"] = page(system, one, docs.parent)
    return made


def page(system: System, part: Part, root: Path) -> str:
    """Return the page of a system."""
    return template("page.md.jinja", root).render(system=system, part=part)


@cache
def template(name: str, root: Path) -> Template:
    """Return a template of docs/table, whose filters read the code below root."""
    environment = Environment(
        loader=FileSystemLoader(DOCS / "table"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        **{"slug": slug, "link": link, "script": script, "sentence": sentence},
        "documented": partial(documented, root),
        "first_line": partial(first_line, root),
        "function": partial(function, root),
        "heading": partial(heading, root),
    }
    return environment.get_template(name)


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


def script(command: str) -> str:
    """Return the script of a command, or else its first file."""
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


def heading(root: Path, measured: str) -> str:
    """Return the title of a page of figures, which may have an #anchor."""
    path, _, _ = measured.partition("#")
    return (root / "docs" / path).read_text("utf-8").splitlines()[0].lstrip("# ")


def main() -> int:
    """Write the pages that have changed, and delete those without a system."""
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
