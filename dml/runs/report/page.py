"""The HTML page of runs, with inlined styles, scripts, data and images.

The content security policy of the page forbids requests and other scripts.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from dml.runs import results
from dml.runs.listing import (
    MAIN,
    ListedRun,
    Skipped,
    compare_flags,
    groups_of_seeds,
    measures,
    number,
    total,
)
from dml.runs.report.curves import encode_curves
from dml.runs.report.figures import figures, without_largest
from dml.types import BadInput

HERE = Path(__file__).parent
NAME = "report.html"
STYLES, SCRIPTS = ("page.css",), ("charts.js", "page.js")
MAX_BYTES = 9_800_000  # of a page; the largest figures of a larger page are omitted
TOTALS = {  # sums over all runs
    "seconds": ("run time", " s"),
    "energy_kwh": ("energy", " kWh"),
    "co2_kg": ("carbon", " kg CO₂e"),
    "cost_usd": ("cost", " USD"),
}
STATUSES = (results.DONE, results.INTERRUPTED, results.FAILED, results.NOT_ENDED)
VISIBLE = 8  # number of measures with a visible column at first
MAX_CELL = 60  # characters of a cell
MAX_TOOLTIP = 2000  # characters of a tooltip
MAX_CELLS = 60_000  # in the table, approximately; larger pages open slowly


def page(runs: Sequence[ListedRun], skipped: Sequence[Skipped]) -> str:
    """Return the page; if it exceeds MAX_BYTES, without the largest figures."""
    differ, same = compare_flags(runs)
    names = measures(runs)
    columns = names[: max(2 * VISIBLE, MAX_CELLS // len(runs))]
    data, constant = encode_curves(runs)
    style, script = ("".join(map(source, files)) for files in (STYLES, SCRIPTS))
    values = {
        "title": title(runs),
        "style": style,
        "script": script,
        "policy": "default-src 'none'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; style-src '{digest(style)}'; "
        f"script-src '{digest(script)}'",
        "states": states(runs).capitalize(),
        "facts": facts(runs),
        "skipped": skipped,
        "runs": runs,
        "differ": differ,
        "measures": columns,
        "hidden": {name for name in columns[VISIBLE:] if name not in MAIN},
        "omitted": len(names) - len(columns),
        "everywhere": {
            name: flag.value for name, flag in same.items() if flag.runs == len(runs)
        },
        "elsewhere": {
            name: flag.value for name, flag in same.items() if flag.runs < len(runs)
        },
        "charts": [measure["name"] for measure in data["measures"]],
        "constants": {name: rounded(value) for name, value in constant.items()},
        "data": json_text(
            data
            | {"names": [run.name for run in runs], "groups": groups_of_seeds(runs)}
        ),
        "timeline": "timeline.svg",
    }
    template = environment().get_template("page.html")
    all_figures = figures(runs)
    html = template.render(values, figures=all_figures)
    excess = len(html.encode("utf-8", "replace")) - MAX_BYTES
    if excess <= 0:
        return html
    return template.render(values, figures=without_largest(all_figures, excess))


def default_path(paths: Sequence[Path]) -> Path:
    """Return report.html in the folder of the paths, or in that of all of them."""
    shared = os.path.commonpath([os.path.abspath(path) for path in paths])
    return Path(os.path.relpath(shared), NAME)


def write(path: Path, runs: Sequence[ListedRun], skipped: Sequence[Skipped]) -> int:
    """Write the page; return its bytes. Raise BadInput if it cannot be written."""
    content = page(runs, skipped).encode("utf-8", "replace")
    try:
        return path.write_bytes(content)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"expected a file to write, got --out={path} ({error}); pass another path"
        ) from error


def environment() -> Environment:
    """Return Jinja's environment, which escapes all values."""
    jinja = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"clip": clip, "lines": lines, "text": text, "cell": cell}
    jinja.filters |= {"environment": environment_values, "line_style": line_style}
    return jinja


def line_style(row: int) -> str:
    """Return the classes of a run's line: a colour, and solid, dashed or dotted."""
    return f"c{row % 8} d{row // 8 % 3}"


def source(name: str) -> str:
    """Return the text of a style sheet or script."""
    return (HERE / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the hash of a text for a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def json_text(data: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def title(runs: Sequence[ListedRun]) -> str:
    """Return the number of runs, and their experiments, as text."""
    count = "A run" if len(runs) == 1 else f"{len(runs)} runs"
    experiments = dict.fromkeys(run.experiment for run in runs)
    return f"{count} of {limited_list(experiments)}"


def states(runs: Sequence[ListedRun]) -> str:
    """Return the number of runs by status, as text."""
    statuses = [run.status for run in runs]
    names = [name for name in STATUSES if name in statuses]
    return joined_list(f"{statuses.count(name)} {name}" for name in names)


def facts(runs: Sequence[ListedRun]) -> list[tuple[str, str]]:
    """Return hosts, commits, days and totals of the runs, by name."""
    pairs = []
    for name, values in (
        ("hosts", config_values(runs, "host")),
        ("commits", config_values(runs, "commit", 10)),
    ):
        if values:
            pairs.append((name if len(values) > 1 else name[:-1], limited_list(values)))
    days = sorted({run.began[:10] for run in runs})
    pairs.append(("began", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"))
    for measure, (name, unit) in TOTALS.items():
        value = total(runs, measure)
        if value is not None:
            pairs.append((name, f"{rounded(value, 3)}{unit}"))
    return pairs


def config_values(runs: Sequence[ListedRun], key: str, length: int = 80) -> list[str]:
    """Return the distinct values of a key of config.json, shortened to `length`."""
    values = dict.fromkeys(text(run.results.config.get(key) or "") for run in runs)
    return [
        value[:length] + "-dirty" * (key == "commit" and value.endswith("-dirty"))
        for value in values
        if value
    ]


def environment_values(run: ListedRun) -> dict[str, Any]:
    """Return the config of a run without flags, with the versions of packages."""
    values = {key: value for key, value in run.results.config.items() if key != "flags"}
    versions = values.pop("versions", {})
    if isinstance(versions, dict):
        values |= versions
    return {"began (UTC)": run.began} | values


def cell(value: Any, hidden: bool) -> Markup:
    """Return a table cell with a rounded number, and its exact value for sorting."""
    parsed = number(value)
    css_class = "n off" if hidden else "n"
    if parsed is None:
        return Markup(f'<td class="{css_class}"></td>')
    short = rounded(parsed)
    exact = repr(parsed).removesuffix(".0") if math.isfinite(parsed) else ""
    data = f' data-v="{exact}"' if exact != short else ""
    return Markup(f'<td class="{css_class}"{data}>{short}</td>')


def clip(text: str, length: int = MAX_CELL) -> Markup:
    """Return text as HTML; a text longer than `length` is cut and has a tooltip."""
    if len(text) <= length:
        return Markup(escape(text))
    title = escape(text[:MAX_TOOLTIP])
    return Markup(f'<span title="{title}">{escape(text[: length - 1])}…</span>')


def lines(values: Mapping[str, Any], prefix: str = "", separator: str = "  ") -> Markup:
    """Return preformatted lines of prefix, name, separator and value."""
    if not values:
        return Markup('<p class="note">None.</p>')
    width = max(map(len, values)) if separator.isspace() else 0
    formatted = []
    for name, value in values.items():
        start = escape(prefix + name.ljust(width))
        formatted.append(f"{start}{separator}{clip(text(value), 4 * MAX_CELL)}")
    body = "\n".join(formatted)
    return Markup(f"<pre>{body}</pre>")


def rounded(value: float, digits: int = 5) -> str:
    """Return a number with few digits; large numbers as grouped integers."""
    if 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(value: Any) -> str:
    """Return text unchanged, and other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def limited_list(names: Iterable[str], limit: int = 4) -> str:
    """Return the first `limit` names, and the number of further names."""
    names = list(names)
    further = len(names) - limit
    return joined_list([*names[:limit], f"{further} more"] if further > 0 else names)


def joined_list(names: Iterable[str]) -> str:
    """Return names with commas between them, and `and` before the last."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
