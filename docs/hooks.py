"""Hooks of mkdocs: the order of pages, and links to the code.

Pages link files of the repository, as on GitHub. In the site each of these files has a
page with its source; links to files that do not exist fail the build.
"""

import posixpath
import re
from html import escape
from pathlib import Path

import book
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()\.\./[^)#\s]+(?=\))")
CODE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{path}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{up}book.css"></head>
<body class="code"><p><a href="{up}index.html">dml, the book</a></p><h1>{path}</h1>
<pre>{source}</pre></body></html>
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages in order."""
    docs = Path(config.docs_dir)
    found = book.parts(docs)
    config.nav = [
        {"Start": "index.md"},
        {"Index of names": "names.md"},
        {"All systems": "systems/index.md"},
        *({part.title: chapter(part)} for part in found),
        {"Every strategy on every problem": "matrix.md"},
        {"Glossary": "glossary.md"},
        {"Papers": "RESULTS.md"},
    ]
    return config


def chapter(part: book.Part) -> list[dict[str, str] | str]:
    """List a part's systems, then its measured pages."""
    systems = [{one.title: f"systems/{one.page}.md"} for one in part.systems]
    return [*systems, *part.measured]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that a page links."""
    root = Path(config.docs_dir).parent
    wanted = set()
    for file in files.documentation_pages():
        for found in LINK.findall(file.content_string):
            wanted.add(target(found, file.src_uri))
    for path in sorted(wanted):
        if not path.startswith(("..", "docs/")) and (root / path).is_file():
            text = shown(path, (root / path).read_text("utf-8"))
            files.append(File.generated(config, f"code/{path}.html", content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Replace links to the code by links to its pages."""
    folder = posixpath.dirname(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        code = f"code/{target(match[0], page.file.src_uri)}.html"
        known = files.get_file_from_path(code)
        return posixpath.relpath(code, folder or ".") if known else match[0]

    return LINK.sub(led, markdown)


def target(link: str, page: str) -> str:
    """Return the path of a page's link in the repository."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def shown(path: str, source: str) -> str:
    """Return the page of a file, without highlighting, which would be slow."""
    up = "../" * (path.count("/") + 1)
    return CODE.format(path=path, up=up, source=escape(source, quote=False))
