"""Runs told, HTML out: one page that holds its own style, script, numbers and images.

Nothing may leave it: its policy forbids every request, and scripts other than ours.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from report_curves import packed
from report_figures import figures
from report_runs import Same, Skipped, Told, compared, measures, total
from report_table import clipped, lines, listed, own, rounded, table, text

HERE = Path(__file__).parent
STYLES, SCRIPTS = ("report.css",), ("report_charts.js", "report.js")
LIMIT = 9_800_000  # bytes of a page: figures over it are left out
TOTALS = {  # what all runs took together
    "seconds": ("run time", " s"),
    "energy_kwh": ("energy", " kWh"),
    "co2_kg": ("carbon", " kg CO₂e"),
    "cost_usd": ("cost", " USD"),
}


def page(runs: Sequence[Told], skipped: Sequence[Skipped]) -> str:
    """Return the whole page."""
    differ, same = compared(runs)
    data = packed(runs)
    parts = [
        summary(runs, skipped),
        "<main>",
        *failures(runs),
        runs_section(runs, differ, measures(runs), same),
        curves(data["measures"]),
    ]
    data |= {"names": [each.name for each in runs]}
    body = "\n".join(parts)
    bare = document(runs, body + each_run(runs, [[] for _ in runs]), data)
    drawn = figures(runs, LIMIT - len(bare.encode("utf-8", "replace")))
    return document(runs, body + each_run(runs, drawn), data)


def document(runs: Sequence[Told], body: str, data: dict[str, Any]) -> str:
    style, script = ("".join(map(source, names)) for names in (STYLES, SCRIPTS))
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{digest(style)}'; script-src '{digest(script)}'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title(runs))}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#runs">Skip to the runs</a>
{body}
<script type="application/json" id="data">{embedded(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return what a policy calls this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: dict[str, Any]) -> str:
    """Return data as JSON that cannot end the element that holds it."""
    whole = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return whole.replace("<", "\\u003c")


def title(runs: Sequence[Told]) -> str:
    one = len(runs) == 1
    experiments = dict.fromkeys(each.experiment for each in runs)
    return f"{'A run' if one else f'{len(runs)} runs'} of {few(experiments)}"


def few(words: Sequence[str] | dict[str, None], most: int = 4) -> str:
    """Return words as a list, of many the first."""
    every = list(words)
    rest = len(every) - most
    return listed([*every[:most], f"{rest} more"] if rest > 0 else every)


def summary(runs: Sequence[Told], skipped: Sequence[Skipped]) -> str:
    """Return the head of the page: what ran, where, when, and what it took."""
    days = sorted({each.began[:10] for each in runs})
    facts = {"hosts": config(runs, "host"), "commits": config(runs, "commit", 10)}
    told = "".join(
        f"<div><dt>{name if len(values) > 1 else name[:-1]}</dt>"
        f"<dd>{escape(few(values))}</dd></div>"
        for name, values in facts.items()
        if values
    )
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    told += f"<div><dt>began</dt><dd>{when}</dd></div>"
    for measure, (name, unit) in TOTALS.items():
        found = total(runs, measure)
        if found is not None:
            told += f"<div><dt>{name}</dt><dd>{rounded(found, 3)}{unit}</dd></div>"
    states = [each.status for each in runs]
    counts = [
        f"{states.count(state)} {state}"
        for state in ("done", "failed", "not ended")
        if state in states
    ]
    left = "".join(
        f"<li><code>{clipped(each.folder, 200)}</code> {clipped(each.why, 400)}</li>"
        for each in skipped
    )
    many = "folder is" if len(skipped) == 1 else "folders are"
    note = f"<p>{len(skipped)} {many} left out:</p><ul>{left}</ul>" if left else ""
    return f"""<header>
<button type="button" id="theme" hidden>Dark</button>
<h1>{escape(title(runs))}</h1>
<p class="lead">{listed(counts).capitalize()}.</p>
<dl class="facts">{told}</dl>
{f'<div class="skipped" role="note">{note}</div>' if note else ""}
</header>"""


def config(runs: Sequence[Told], key: str, long: int = 80) -> list[str]:
    """Return the distinct values of a key of config.json."""
    found = dict.fromkeys(text(each.run.config.get(key) or "") for each in runs)
    return [
        value[:long] + "-dirty" * (key == "commit" and value.endswith("-dirty"))
        for value in found
        if value
    ]


def failures(runs: Sequence[Told]) -> list[str]:
    """Return the last line of each run that failed."""
    items = "".join(
        f'<li><a href="#run-{at}">{escape(each.name)}</a> '
        f"<code>{clipped(each.tail[-1], 200)}</code></li>"
        for at, each in enumerate(runs)
        if each.status == "failed"
    )
    if not items:
        return []
    return [f'<section class="failures"><h2>Failed</h2><ul>{items}</ul></section>']


def runs_section(
    runs: Sequence[Told],
    differ: Sequence[str],
    measures: Sequence[str],
    same: dict[str, Same],
) -> str:
    everywhere = {flag: same[flag] for flag in same if same[flag].runs == len(runs)}
    elsewhere = {flag: same[flag] for flag in same if flag not in everywhere}
    return f"""<section id="runs" aria-labelledby="runs-title">
<h2 id="runs-title">Runs</h2>
<div class="tools" hidden>
<label>Filter <input type="search" id="filter" placeholder="word or --lr=0.1"></label>
<details id="columns"><summary>Columns</summary><div></div></details>
<span id="count" role="status"></span>
</div>
{table(runs, differ, measures)}
<button type="button" id="all" hidden>Show all rows</button>
{equal("Same in all runs", everywhere)}
{equal("Same in the runs that have them", elsewhere)}
</section>"""


def equal(title: str, flags: dict[str, Same]) -> str:
    """Return flags of one value, folded."""
    if not flags:
        return ""
    values = lines({flag: each.value for flag, each in flags.items()}, "--", "=")
    many = f"{len(flags)} flag{'s' * (len(flags) != 1)}"
    return (
        f'<details class="same"><summary>{title} <span class="note">{many}</span>'
        f"</summary>{values}</details>"
    )


def curves(measures: Sequence[dict[str, Any]]) -> str:
    """Return the places of the charts, one a measure; the script draws them."""
    charts = "\n".join(
        f'<figure class="chart" data-measure="{at}"><figcaption><b>'
        f"{clipped(each['name'])}</b><span></span><i></i></figcaption><div></div></figure>"
        for at, each in enumerate(measures)
    )
    if not measures:
        charts = '<p class="note">No run has rows with numbers.</p>'
    return f"""<section id="curves" aria-labelledby="curves-title">
<h2 id="curves-title">Curves</h2>
<noscript><p>Curves and figures are drawn by this page's script.</p></noscript>
<div class="tools" hidden>
<label>Against <select id="axis"></select></label>
<label>Scale <select id="scale"><option>linear</option><option>log</option></select>
</label>
<label>Colour by <select id="colour"></select></label>
<ul id="legend"></ul>
</div>
<div class="charts">
{charts}
</div>
</section>"""


def each_run(runs: Sequence[Told], drawn: Sequence[Sequence[Any]]) -> str:
    every = "\n".join(
        own(at, each, mine)
        for at, (each, mine) in enumerate(zip(runs, drawn, strict=True))
    )
    return f"""
<section id="each" aria-labelledby="each-title">
<h2 id="each-title">Each run</h2>
{every}
</section>
</main>"""
