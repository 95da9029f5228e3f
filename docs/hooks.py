"""Hooks of mkdocs: pages of the API, links from pages to the code, cores of chapters.

Pages link files of the repository, as on GitHub. In the site a link to a module of dml/
leads to its API; a link to any other file leads to a page with its source. If the text
of the link is the name of a function or class, the link leads there. Links to missing
files fail a strict build. A chapter includes the core of its single file: `excerpts`.
"""

import ast
import posixpath
import re
from html import escape
from pathlib import Path

from excerpts import CORE, Definition, core, definitions
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?:(?<=`)(?P<name>[\w.]+)`)?\]\((?P<link>(?:\.\./)+[^)#\s]+)(?=\))")
BOOSTS = {"Chapters": 4, "API": 1e-3}  # of the hits in a section of the navigation
SOURCE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{path}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{up}book.css"></head>
<body class="code"><main><p><a href="{up}index.html">dml, the book</a></p>
<h1>{path}</h1><pre tabindex="0">{source}</pre></main></body></html>
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API pages to the navigation."""
    pages = [f"api/{package}.md" for package in packages(repository(config))]
    config.nav = [*(config.nav or []), {"API": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API pages, and a page with the source of every other linked file."""
    root = repository(config)
    linked = {
        target(found["link"], page.src_uri)
        for page in files.documentation_pages()
        for found in LINK.finditer(page.content_string)
    }
    for package, modules in packages(root).items():
        directives = "\n\n".join(f"::: {module}" for module in modules)
        text = f"# {package}\n\n{directives}\n"
        files.append(File.generated(config, f"api/{package}.md", content=text))
    for path in sorted(linked):
        outside = path.startswith(("..", "docs/")) or module_page(path, root)
        if not outside and (root / path).is_file():
            text = source_page(path, (root / path).read_text("utf-8"))
            files.append(File.generated(config, f"code/{path}.html", content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Include cores; replace links to files of the repository by pages of the site.

    In the search, chapters precede other pages, and the API follows them.
    """
    section = page.parent.title if page.parent else ""
    if section in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[section]}
    folder = posixpath.dirname(page.file.src_uri)
    root = repository(config)

    def replaced(match: re.Match[str]) -> str:
        path, name = target(match["link"], page.file.src_uri), match["name"] or ""
        uri = module_page(path, root, name) or f"code/{path}.html"
        if uri.startswith("code/") and path.endswith(".py"):
            named = name in definitions((root / path).read_text("utf-8"))
            uri += f"#{name}" * named
        known = files.get_file_from_path(uri.partition("#")[0])
        start = match[0].removesuffix(match["link"])
        return start + posixpath.relpath(uri, folder or ".") if known else match[0]

    def included(match: re.Match[str]) -> str:
        source = (root / match["path"]).read_text("utf-8")
        return f"{match[0]}\n\n{core(source, match['items'])}"

    return LINK.sub(replaced, CORE.sub(included, markdown))


def on_page_content(html: str, **context: object) -> str:
    """Leave source code out of the search: two thirds of its index."""
    source = '<details class="mkdocstrings-source"'
    return html.replace(source, f"{source} data-search-exclude")


def repository(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def packages(root: Path) -> dict[str, list[str]]:
    """Return the modules of every package of dml, by the package's name."""
    modules: dict[str, list[str]] = {}
    for path in sorted((root / "dml").rglob("*.py")):
        package = ".".join(path.parent.relative_to(root).parts)
        modules.setdefault(package, []).append(module(path.relative_to(root)))
    return dict(sorted(modules.items()))


def module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def module_page(path: str, root: Path, name: str = "") -> str:
    """Return the API page and anchor of a module of dml, "" for other files.

    The anchor is that of a function or class `name` if the page describes it.
    """
    if not re.match(r"dml/.*\.py$", path) or not (root / path).is_file():
        return ""
    package = posixpath.dirname(path).replace("/", ".")
    found = name and definitions((root / path).read_text("utf-8")).get(name)
    described = isinstance(found, Definition) and ast.get_docstring(found)
    own = f".{name}" if described and not name.startswith("_") else ""
    return f"api/{package}.md#{module(Path(path))}{own}"


def target(link: str, page: str) -> str:
    """Return the path in the repository that a link of a page leads to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def source_page(path: str, source: str) -> str:
    """Return an HTML page with a file's source, with anchors; highlighting is slow."""
    up, lines = "../" * (path.count("/") + 1), escape(source, quote=False).split("\n")
    for name, node in definitions(source).items() if path.endswith(".py") else ():
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line.replace(name, f'<b id="{name}">{name}</b>', 1)
    return SOURCE.format(path=path, up=up, source="\n".join(lines))
