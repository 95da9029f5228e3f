"""Hooks of mkdocs: a page for each package's API, and links from pages to the code.

Pages link files of the repository, as on GitHub. In the site a link to a module of dml/
leads to its API; a link to any other file leads to a page with its source. Links to
missing files fail a strict build.
"""

import posixpath
import re
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()(?:\.\./)+[^)#\s]+(?=\))")
SOURCE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{path}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{up}book.css"></head>
<body class="code"><p><a href="{up}index.html">dml, the book</a></p><h1>{path}</h1>
<pre>{source}</pre></body></html>
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
        target(link, page.src_uri)
        for page in files.documentation_pages()
        for link in LINK.findall(page.content_string)
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
    """Replace links to files of the repository by links to pages of the site."""
    folder = posixpath.dirname(page.file.src_uri)
    root = repository(config)

    def replaced(match: re.Match[str]) -> str:
        path = target(match[0], page.file.src_uri)
        uri = module_page(path, root) or f"code/{path}.html"
        known = files.get_file_from_path(uri.partition("#")[0])
        return posixpath.relpath(uri, folder or ".") if known else match[0]

    return LINK.sub(replaced, markdown)


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


def module_page(path: str, root: Path) -> str:
    """Return the API page and anchor of a module of dml, "" for other files."""
    if not re.match(r"dml/.*\.py$", path) or not (root / path).is_file():
        return ""
    package = posixpath.dirname(path).replace("/", ".")
    return f"api/{package}.md#{module(Path(path))}"


def target(link: str, page: str) -> str:
    """Return the path in the repository that a link of a page leads to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def source_page(path: str, source: str) -> str:
    """Return an HTML page with a file's source; highlighting would be slow."""
    up = "../" * (path.count("/") + 1)
    return SOURCE.format(path=path, up=up, source=escape(source, quote=False))
