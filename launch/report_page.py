"""The HTML page of runs, with inlined styles, scripts, data and images.

The content security policy of the page forbids requests and other scripts.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from report_curves import packed
from report_figures import figures, without_largest
from report_runs import MAIN, ListedRun, Skipped, compared, measures, number, total

HERE = Path(__file__).parent
STYLES, SCRIPTS = ("report.css",), ("report_charts.js", "report.js")
LIMIT = 9_800_000  # largest page in bytes; beyond it the largest figures are omitted
TOTALS = {  # sums over all runs
    "seconds": ("run time", " s"),
    "energy_kwh": ("energy", " kWh"),
    "co2_kg": ("carbon", " kg CO₂e"),
    "cost_usd": ("cost", " USD"),
}
VISIBLE = 8  # number of measures that are shown initially
LONG = 60  # largest number of characters of a cell
TITLE = 2000  # largest number of characters of a tooltip
CELLS = 60_000  # approximate limit of the table's cells; larger pages open slowly


def page(runs: Sequence[ListedRun], skipped: Sequence[Skipped]) -> str:
    """Return the page; if it exceeds LIMIT, without the largest figures."""
    differ, same = compared(runs)
    every = measures(runs)
    fits = every[: max(2 * VISIBLE, CELLS // len(runs))]
    data = packed(runs)
    style, script = ("".join(map(source, names)) for names in (STYLES, SCRIPTS))
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
        "measures": fits,
        "hidden": {name for name in fits[VISIBLE:] if name not in MAIN},
        "left": len(every) - len(fits),
        "everywhere": {
            name: flag.value for name, flag in same.items() if flag.runs == len(runs)
        },
        "elsewhere": {
            name: flag.value for name, flag in same.items() if flag.runs < len(runs)
        },
        "charts": [each["name"] for each in data["measures"]],
        "data": embedded(data | {"names": [each.name for each in runs]}),
        "timeline": "timeline.svg",
    }
    template = environment().get_template("report.html")
    drawings = figures(runs)
    html = template.render(values, figures=drawings)
    excess = len(html.encode("utf-8", "replace")) - LIMIT
    if excess <= 0:
        return html
    return template.render(values, figures=without_largest(drawings, excess))


def environment() -> Environment:
    """Return Jinja's environment, which escapes all values."""
    jinja = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"clip": clip, "lines": lines, "text": text, "cell": cell}
    jinja.filters["environment"] = surroundings
    return jinja


def source(name: str) -> str:
    """Return the text of a style sheet or script."""
    return (HERE / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the hash of a text for a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def title(runs: Sequence[ListedRun]) -> str:
    """Return the number of runs, and their experiments, as text."""
    count = "A run" if len(runs) == 1 else f"{len(runs)} runs"
    experiments = dict.fromkeys(each.experiment for each in runs)
    return f"{count} of {few(experiments)}"


def states(runs: Sequence[ListedRun]) -> str:
    """Return the number of done, failed and unfinished runs, as text."""
    statuses = [each.status for each in runs]
    names = [name for name in ("done", "failed", "not ended") if name in statuses]
    return listed(f"{statuses.count(name)} {name}" for name in names)


def facts(runs: Sequence[ListedRun]) -> list[tuple[str, str]]:
    """Return hosts, commits, days and totals of the runs, by name."""
    pairs = []
    for name, values in (
        ("hosts", config(runs, "host")),
        ("commits", config(runs, "commit", 10)),
    ):
        if values:
            pairs.append((name if len(values) > 1 else name[:-1], few(values)))
    days = sorted({each.began[:10] for each in runs})
    pairs.append(("began", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"))
    for measure, (name, unit) in TOTALS.items():
        value = total(runs, measure)
        if value is not None:
            pairs.append((name, f"{rounded(value, 3)}{unit}"))
    return pairs


def config(runs: Sequence[ListedRun], key: str, long: int = 80) -> list[str]:
    """Return the distinct values of a key of config.json."""
    values = dict.fromkeys(text(each.run.config.get(key) or "") for each in runs)
    return [
        value[:long] + "-dirty" * (key == "commit" and value.endswith("-dirty"))
        for value in values
        if value
    ]


def surroundings(each: ListedRun) -> dict[str, Any]:
    """Return the config of a run without flags, with the versions of packages."""
    values = {key: value for key, value in each.run.config.items() if key != "flags"}
    versions = values.pop("versions", {})
    if isinstance(versions, dict):
        values |= versions
    return {"began (UTC)": each.began} | values


def cell(value: Any, hidden: bool) -> Markup:
    """Return a table cell with a rounded number, and its exact value for sorting."""
    parsed, kind = number(value), "n off" if hidden else "n"
    if parsed is None:
        return Markup(f'<td class="{kind}"></td>')
    short = rounded(parsed)
    exact = repr(parsed).removesuffix(".0") if math.isfinite(parsed) else ""
    data = f' data-v="{exact}"' if exact != short else ""
    return Markup(f'<td class="{kind}"{data}>{short}</td>')


def clip(words: str, long: int = LONG) -> Markup:
    """Return words as HTML, shortened to `long` characters with a tooltip."""
    if len(words) <= long:
        return Markup(escape(words))
    title = escape(words[:TITLE])
    return Markup(f'<span title="{title}">{escape(words[: long - 1])}…</span>')


def lines(values: Mapping[str, Any], start: str = "", between: str = "  ") -> Markup:
    """Return names and values as preformatted, aligned lines."""
    if not values:
        return Markup('<p class="note">None.</p>')
    wide = max(map(len, values)) if between.isspace() else 0
    body = "\n".join(
        f"{escape(start + name.ljust(wide))}{between}{clip(text(value), 4 * LONG)}"
        for name, value in values.items()
    )
    return Markup(f"<pre>{body}</pre>")


def rounded(value: float, digits: int = 5) -> str:
    """Return a number with few digits; large numbers as grouped integers."""
    if 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(value: Any) -> str:
    """Return text unchanged, and other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def few(words: Iterable[str], most: int = 4) -> str:
    """Return words as a list, limited to the first `most`."""
    every = list(words)
    rest = len(every) - most
    return listed([*every[:most], f"{rest} more"] if rest > 0 else every)


def listed(words: Iterable[str]) -> str:
    """Return words with commas between them, and `and` before the last."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last
