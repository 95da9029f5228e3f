"""Pages of one HTML file: a template with its texts, style, script and data."""

import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any


def write(
    path: Path, folder: Any, texts: Mapping[str, str], data: Any, style: str = ""
) -> None:
    """Write page.html of a folder, with its page.css and page.js inside.

    Args:
      path: The page.
      folder: Folder or package resources of the three files.
      texts: Texts of the template's names; they are escaped.
      data: Data of the script, written as JSON.
      style: Style before page.css.
    """
    text = folder.joinpath("page.html").read_text("utf-8")
    # no text of the data can end its element
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    values = {name: html.escape(value) for name, value in texts.items()} | {
        "style": style + folder.joinpath("page.css").read_text("utf-8"),
        "script": folder.joinpath("page.js").read_text("utf-8"),
        "data": encoded,
    }
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    path.write_text(text, "utf-8")


def style_of(package: str) -> str:
    """Return page.css of a package."""
    return resources.files(package).joinpath("page.css").read_text("utf-8")
