"""Runs in; the HTML of their table and of each run's own lines out, all escaped."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from report_figures import Figure, drawn
from report_runs import MAIN, Told, number

COLOURS = 8  # of curves and swatches, as report.css has them
LONG = 60  # letters of a cell
TITLE = 2000  # letters of what a pointer shows of a longer value
VISIBLE = 8  # measures shown at first; a reader chooses others
CELLS = 60_000  # of the table, about: more of them open too slowly


def table(runs: Sequence[Told], differ: Sequence[str], measures: Sequence[str]) -> str:
    """Return the table of runs: what differs, then what was measured."""
    fits = measures[: max(2 * VISIBLE, CELLS // len(runs))]
    hidden = {name for name in fits[VISIBLE:] if name not in MAIN}
    heads = [head("run"), head("status"), head("began", "off"), head("ranks", "flag")]
    heads += [head(f"--{flag}", "flag") for flag in differ]
    heads += [head(name, "n off" if name in hidden else "n") for name in fits]
    rows = "\n".join(
        row(at, each, differ, fits, hidden) for at, each in enumerate(runs)
    )
    left = measures[len(fits) :]
    rest = f" {len(left)} more measures stand with each run." if left else ""
    return f"""<div class="scroll" role="region" aria-label="All runs" tabindex="0">
<table id="table">
<caption>Flags that differ and measures of {len(runs)} runs.{rest}</caption>
<thead><tr>{"".join(heads)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def head(name: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return (
        f'<th scope="col" aria-sort="none"{kind}>'
        f'<button type="button">{clipped(name)}</button></th>'
    )


def row(
    at: int, told: Told, differ: Sequence[str], measures: Sequence[str], hidden: set
) -> str:
    name = escape(told.name)
    cells = [
        f'<th scope="row"><i class="swatch c{at % COLOURS}"></i>'
        f'<a href="#run-{at}" title="{name}">{name}</a></th>',
        f'<td class="{told.status.replace(" ", "-")}">{told.status}</td>',
        f'<td class="off">{told.began}</td>',
        f"<td>{clipped(text(told.run.config.get('ranks', '')))}</td>",
    ]
    for flag in differ:
        has = flag in told.run.flags
        cells.append(f"<td>{clipped(text(told.run.flags[flag])) if has else ''}</td>")
    cells += [cell(told.run.summary.get(name), name in hidden) for name in measures]
    return f'<tr data-run="{at}">{"".join(cells)}</tr>'


def cell(value: Any, hidden: bool) -> str:
    """Return the cell of a number, with all its digits to sort by."""
    found, kind = number(value), "n off" if hidden else "n"
    if found is None:
        return f'<td class="{kind}"></td>'
    short = rounded(found)
    exact = repr(found).removesuffix(".0") if math.isfinite(found) else ""
    data = f' data-v="{exact}"' if exact != short else ""
    return f'<td class="{kind}"{data}>{short}</td>'


def rounded(value: float, digits: int = 5) -> str:
    """Return a number to read: of few digits, or whole and in groups of three."""
    if 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(value: Any) -> str:
    """Return a value of JSON as one reads it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def clipped(words: str, long: int = LONG) -> str:
    """Return words as HTML; of many, the first, and more under the pointer."""
    if len(words) <= long:
        return escape(words)
    whole = escape(words[:TITLE])
    return f'<span title="{whole}">{escape(words[: long - 1])}…</span>'


def lines(values: Mapping[str, Any], start: str = "", between: str = "  ") -> str:
    """Return names and values as preformatted lines, the values under each other."""
    wide = max((len(name) for name in values), default=0) if between.isspace() else 0
    body = "\n".join(
        f"{escape(start + name.ljust(wide))}{between}{clipped(text(value), 4 * LONG)}"
        for name, value in values.items()
    )
    return f"<pre>{body}</pre>" if body else '<p class="note">None.</p>'


def own(at: int, told: Told, figures: Sequence[Figure]) -> str:
    """Return all that the page has of one run, folded."""
    config = {key: value for key, value in told.run.config.items() if key != "flags"}
    versions = config.pop("versions", {})
    if isinstance(versions, dict):
        config |= versions
    tail = escape("\n".join(told.tail))
    parts = [
        part("Last lines of its output", f"<pre>{tail}</pre>") if told.tail else "",
        drawn(figures, told.name),
        part("Summary", lines(told.run.summary)) if told.run.summary else "",
        part("Flags", lines(told.run.flags, "--", "=")),
        part("Environment", lines({"began (UTC)": told.began} | config)),
    ]
    return (
        f'<details id="run-{at}"><summary><i class="swatch c{at % COLOURS}"></i>'
        f'{escape(told.name)} <span class="note">{told.status}</span></summary>\n'
        + "\n".join(filter(None, parts))
        + "\n</details>"
    )


def part(title: str, body: str) -> str:
    return f"<h3>{title}</h3>\n{body}"


def listed(words: Iterable[str]) -> str:
    """Return words with commas between them, and `and` before the last."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last
