"""The HTML page of runs, with its own style, script, numbers and images.

The page makes no request: its policy forbids requests and other scripts.
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
from report_runs import MAIN, Skipped, Told, compared, measures, number, total

HERE = Path(__file__).parent
STYLES, SCRIPTS = ("report.css",), ("report_charts.js", "report.js")
LIMIT = 9_800_000  # bytes of a page: figures over it are left out
TOTALS = {  # of all runs together
    "seconds": ("run time", " s"),
    "energy_kwh": ("energy", " kWh"),
    "co2_kg": ("carbon", " kg CO₂e"),
    "cost_usd": ("cost", " USD"),
}
VISIBLE = 8  # measures shown at first; a reader chooses others
LONG = 60  # letters of a cell
TITLE = 2000  # letters of a longer value in its title
CELLS = 60_000  # of the table, about: a page with more opens slowly


def page(runs: Sequence[Told], skipped: Sequence[Skipped]) -> str:
    """Return the page; the largest figures are left out beyond LIMIT."""
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
            k: one.value for k, one in same.items() if one.runs == len(runs)
        },
        "elsewhere": {k: one.value for k, one in same.items() if one.runs < len(runs)},
        "charts": [each["name"] for each in data["measures"]],
        "data": embedded(data | {"names": [each.name for each in runs]}),
        "timeline": "timeline.svg",
    }
    template = environment().get_template("report.html")
    drawn = figures(runs)
    found = template.render(values, figures=drawn)
    excess = len(found.encode("utf-8", "replace")) - LIMIT
    if excess <= 0:
        return found
    return template.render(values, figures=without_largest(drawn, excess))


def environment() -> Environment:
    """Return Jinja's environment, which escapes all values."""
    found = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"clip": clip, "lines": lines, "text": text, "cell": cell}
    found.filters["environment"] = surroundings
    return found


def source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return the name of a text in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the element around it."""
    whole = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return whole.replace("<", "\\u003c")


def title(runs: Sequence[Told]) -> str:
    one = len(runs) == 1
    experiments = dict.fromkeys(each.experiment for each in runs)
    return f"{'A run' if one else f'{len(runs)} runs'} of {few(experiments)}"


def states(runs: Sequence[Told]) -> str:
    """Return the numbers of runs that are done, failed and not ended."""
    found = [each.status for each in runs]
    names = [name for name in ("done", "failed", "not ended") if name in found]
    return listed(f"{found.count(name)} {name}" for name in names)


def facts(runs: Sequence[Told]) -> list[tuple[str, str]]:
    """Return hosts, commits, days and totals of the runs, by name."""
    found = []
    for name, values in (
        ("hosts", config(runs, "host")),
        ("commits", config(runs, "commit", 10)),
    ):
        if values:
            found.append((name if len(values) > 1 else name[:-1], few(values)))
    days = sorted({each.began[:10] for each in runs})
    found.append(("began", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"))
    for measure, (name, unit) in TOTALS.items():
        value = total(runs, measure)
        if value is not None:
            found.append((name, f"{rounded(value, 3)}{unit}"))
    return found


def config(runs: Sequence[Told], key: str, long: int = 80) -> list[str]:
    """Return the distinct values of a key of config.json."""
    found = dict.fromkeys(text(each.run.config.get(key) or "") for each in runs)
    return [
        value[:long] + "-dirty" * (key == "commit" and value.endswith("-dirty"))
        for value in found
        if value
    ]


def surroundings(each: Told) -> dict[str, Any]:
    """Return the config of a run without flags, with the versions of packages."""
    found = {key: value for key, value in each.run.config.items() if key != "flags"}
    versions = found.pop("versions", {})
    if isinstance(versions, dict):
        found |= versions
    return {"began (UTC)": each.began} | found


def cell(value: Any, hidden: bool) -> Markup:
    """Return the cell of a number, with all its digits to sort by."""
    found, kind = number(value), "n off" if hidden else "n"
    if found is None:
        return Markup(f'<td class="{kind}"></td>')
    short = rounded(found)
    exact = repr(found).removesuffix(".0") if math.isfinite(found) else ""
    data = f' data-v="{exact}"' if exact != short else ""
    return Markup(f'<td class="{kind}"{data}>{short}</td>')


def clip(words: str, long: int = LONG) -> Markup:
    """Return words as HTML; of a long text the first ones, with more in its title."""
    if len(words) <= long:
        return Markup(escape(words))
    title = escape(words[:TITLE])
    return Markup(f'<span title="{title}">{escape(words[: long - 1])}…</span>')


def lines(values: Mapping[str, Any], start: str = "", between: str = "  ") -> Markup:
    """Return names and values as preformatted lines, the values below each other."""
    if not values:
        return Markup('<p class="note">None.</p>')
    wide = max(map(len, values)) if between.isspace() else 0
    body = "\n".join(
        f"{escape(start + name.ljust(wide))}{between}{clip(text(value), 4 * LONG)}"
        for name, value in values.items()
    )
    return Markup(f"<pre>{body}</pre>")


def rounded(value: float, digits: int = 5) -> str:
    """Return a number with few digits, or whole and in groups of three."""
    if 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(value: Any) -> str:
    """Return a text as it is, and another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def few(words: Iterable[str], most: int = 4) -> str:
    """Return words as a list, of many the first."""
    every = list(words)
    rest = len(every) - most
    return listed([*every[:most], f"{rest} more"] if rest > 0 else every)


def listed(words: Iterable[str]) -> str:
    """Return words with commas between them, and `and` before the last."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last
